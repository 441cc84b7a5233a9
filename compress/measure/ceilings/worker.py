"""A process of its own for measuring ceilings, with one library's thread pool alive and no other.

Run as `python -m compress.measure.ceilings.worker`: a JSON request on stdin; JSON lines on stdout, {"step": ...} for
each thing begun and {"part": ...} at the end.
"""

import json
import os
import sys
from typing import Any

from compress.measure.ceilings import runtime_part, torch_part
from compress.measure.ceilings.parts import Effort
from compress.measure.ceilings.stopwatch import Stopwatch

MEASURES = {"runtime": runtime_part.measure, "torch": torch_part.measure}


def main() -> None:
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # banners of native libraries must not end up in the answer

    def send(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    watch = Stopwatch(threads=request["threads"], effort=Effort(**request["effort"]))
    part = MEASURES[request["part"]](watch, lambda step: send({"step": step}))
    send({"part": part.as_dict()})


if __name__ == "__main__":
    main()
