"""Which op a measured time belongs to. Pure Python."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from compress.analyze.table import Op

Rows = Sequence[Mapping[str, Any]]

# What ONNX Runtime inserts by itself to change layout or device; no file holds it.
INSERTED_MOVES = frozenset({"ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"})


def attributed(ops: Sequence[Op], rows: Rows) -> tuple[dict[int, float], float]:
    """Milliseconds by op number, and the sum of the rows that fit no op.

    rows: {"module"?, "op"?, "name"?, "time_ms"} in the order they ran; each goes to the first op without a time that
    matches what the row names (`name` is matched like `module`).
    """
    waiting: dict[tuple[str | None, str | None], deque[int]] = defaultdict(deque)
    for index, op in enumerate(ops):
        for key in ((op.module, op.op), (op.module, None), (None, op.op)):
            waiting[key].append(index)
    times: dict[int, float] = {}
    unattributed = 0.0
    for row in rows:
        queue = waiting[row.get("module", row.get("name")), row.get("op")]
        while queue and queue[0] in times:
            queue.popleft()
        if queue:
            times[queue.popleft()] = float(row["time_ms"])
        else:
            unattributed += float(row["time_ms"])
    return times, unattributed


def inserted_ms(rows: Rows) -> float:
    """Milliseconds of the copies that the runtime inserted between the ops."""
    return sum(float(row["time_ms"]) for row in rows if row.get("op") in INSERTED_MOVES)
