"""Why a file is not faster, from what ran: kernels counted in the optimised graph, time per operator profiled."""

from collections import Counter
from typing import Any

from compress.candidate import Candidate
from compress.export.audit import BOUNDARY_OPS


def why_not_faster(candidate: Candidate, float_nodes: list[dict[str, Any]], int8_nodes: list[dict[str, Any]]) -> str:
    """One sentence: which kernels ran, what they cost in float and in int8, and what conversions cost on top."""
    audit = candidate.audit or {}
    before, after = _by_op(float_nodes), _by_op(int8_nodes)
    total = sum(after.values()) or 1.0
    shares = ", ".join(f"{op} {time / total:.0%}" for op, time in after.most_common(3))
    conversions = sum(time for op, time in after.items() if op in BOUNDARY_OPS) / total
    return (
        f"{audit.get('note', 'not audited')}; "
        f"operators take {total:.3f} ms against {sum(before.values()):.3f} ms in float "
        f"(int8: {shares}; conversions between int8 and float {conversions:.0%})"
    )


def _by_op(nodes: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in nodes:
        found[node["op"]] += node["time_ms"]
    return found
