"""Run both packaged recipes and write the README's result table from their report.json. Repeat with:

python benchmarks/readme_table.py
"""

import subprocess
import sys
from pathlib import Path

from compress.report.read import read_report, resolve_run
from compress.report.schema import Candidate, Report

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
START, END = "<!-- table -->", "<!-- /table -->"
RECIPES = ("int8", "int8-mobile")
HEAD = ["net", "scheme", "top1 (n)", "speed-up, batch 1 [99 %]", "size", "integer / float kernels", "gates"]


def main() -> None:
    for name in RECIPES:
        code = subprocess.run(
            [sys.executable, "-m", "compress", "run", f"recipes/{name}.yaml"], cwd=ROOT, check=False
        ).returncode
        if code not in (0, 1):
            sys.exit(code)
    rows = [row for name in RECIPES for row in rows_of(read_report(resolve_run(name, ROOT / "runs")))]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    before, rest = README.read_text().split(START)
    README.write_text(f"{before}{START}\n{table}\n{END}{rest.split(END)[1]}")


def rows_of(report: Report) -> list[list[str]]:
    """The float baseline and every scheme that was tried, losers included."""
    base = next(baseline for baseline in report.baselines if baseline.name == report.baseline)
    top1, size = base.metrics["top1"], base.metrics["size_bytes"]
    float_row = [
        report.recipe.name,
        "float, ONNX Runtime",
        f"{top1.value:.4f} ({top1.n})",
        "1",
        f"{size.value / 1e3:.0f} kB",
        "-",
        "-",
    ]
    return [float_row] + [_row(report, one) for one in report.candidates if one.form == "int8" and one.metrics]


def _row(report: Report, candidate: Candidate) -> list[str]:
    top1, speed, ratio = (candidate.metrics[name] for name in ("top1", "speedup", "size_ratio"))
    name = candidate.name.removeprefix("ptq/")
    kernels = f"{candidate.audit.integer_ops} / {candidate.audit.float_ops}" if candidate.audit else "not audited"
    overflow = candidate.audit and candidate.audit.saturation and candidate.audit.saturation.saturates
    return [
        report.recipe.name,
        f"**{name}**" if candidate.name == report.winner else name,
        f"{top1.value:.4f} ({top1.n})",
        f"{speed.value:.2f} [{speed.low:.2f}, {speed.high:.2f}]",
        f"{ratio.value:.2f}x",
        kernels + (", sums overflow" if overflow else ""),
        candidate.outcome,
    ]


if __name__ == "__main__":
    main()
