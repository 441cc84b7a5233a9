"""Is the verdict right? Every method predicted, probed, really carried out and timed, side by side. Repeat with:

python benchmarks/verdict.py [--quick] [--out FOLDER]

Writes verdict-KIND.json, one for each kind of processor, to benchmarks/results and all of them into
docs/verdict-benchmark.md, the latest into the README; with --out both files go there.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from parts.verdict_cases import CASES, NETS, QUICK, Case, export, make
from parts.verdict_nets import seeded

from compress.analyze.methods import Asked
from compress.device.facts import cpu_facts, fingerprint, pressure, versions
from compress.files import write_json, write_text
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.measure.stats import Interval
from compress.probe.methods import METHODS
from compress.probe.probe import ProbeResult, probe
from compress.stages.verdict import Judged, Timed, ceilings_of_this_machine, judge_file

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE, START, END = "verdict-benchmark.md", "<!-- rows -->", "<!-- /rows -->"
README, README_START, README_END = ROOT / "README.md", "<!-- verdict -->", "<!-- /verdict -->"
SCHEMA = "compress.verdict-benchmark/1"
# Widest first, by the flag that tells.
KINDS = {"amx_int8": "amx", "avx512_vnni": "vnni", "avx_vnni": "vnni", "avx2": "avx2"}
TITLES = {
    "amx": "With tiles of 8-bit products (AMX)",
    "vnni": "With 8-bit dot products (VNNI)",
    "avx2": "Without 8-bit dot products (AVX2)",
    "other": "Another processor",
}
PREDICTIONS = {
    "int8": ("int8 W8A8",),
    "dynamic-int8": ("int8 dynamic", "int8 W8A8"),
    "weights-int8": ("int8 weight-only",),
    "weights-int4": ("int4 weight-only g128",),
    "prune-50": ("prune 50%",),
    "half-depth": ("half-depth student",),
    "batch-8": ("batch 8",),
    "batch-32": ("batch 32",),
}
# Less than this is called no difference.
DEAD_BAND = 1.05
# A probe that speaks for less of the time than this does not decide.
LEAST_COVERED = 0.5
PROBE_SECONDS, TURN_SECONDS = 4.0, 3.0
BENCH = isolated.Bench(provider="cpu", threads=1, plan=Plan(seconds=2.0, half_width=0.005, cpu_time=True), tries=2)
QUICK_BENCH = isolated.Bench(provider="cpu", threads=1, plan=Plan(min_blocks=5, seconds=0.2, cpu_time=True), tries=1)
ASKED = Asked(prune_ratios=(0.5,), batches=(8, 32))

Sign = Literal["faster", "same", "slower"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one net. hard, expected: predicted by arithmetic; probe: what seconds of timing said.

    answer: the tool's last word, the probe where it speaks for half of the time; sign_right: the answer's sign is one
    that the measured interval reaches; sign_strict: it is that of the measured value.
    """

    net: str
    batch: int
    method: str
    class_: str
    hard: float | None
    expected: float
    probe: dict[str, Any]
    measured: Interval
    answer: float
    answered_by: Literal["probe", "expected"]
    sign_right: bool
    sign_strict: bool
    expected_sign_right: bool
    hard_held: bool


@dataclass(frozen=True, kw_only=True)
class How:
    """How long everything may take."""

    bench: isolated.Bench
    probe_seconds: float
    turn_seconds: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="three rows, timed too shortly to be believed")
    options.add_argument("--out", type=Path, help="folder for both files")
    chosen = options.parse_args()
    how = How(bench=BENCH, probe_seconds=PROBE_SECONDS, turn_seconds=TURN_SECONDS)
    if chosen.quick:
        how = How(bench=QUICK_BENCH, probe_seconds=1.0, turn_seconds=0.2)
    before = pressure()
    rows = [row for case in (QUICK if chosen.quick else CASES) for row in rows_of(case, how)]
    document = {
        "schema": SCHEMA, "date": datetime.now(UTC).isoformat(timespec="seconds"), "quick": chosen.quick,
        "machine": {**cpu_facts(), "fingerprint": fingerprint(), "pressure": {"before": before, "after": pressure()}},
        "versions": versions(), "threads": how.bench.threads, "dead_band": DEAD_BAND,
        "summary": summary(rows), "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    results, page = chosen.out or RESULTS, (chosen.out or ROOT / "docs") / PAGE
    write_json(results / f"verdict-{kind_of(document['machine']['flags'])}.json", document)
    known = documents(results)
    write_text(page, with_tables(page.read_text() if page.exists() else f"{START}\n{END}\n", known))
    if chosen.out is None:
        write_text(README, with_short_table(README.read_text(), known[0]))


def kind_of(flags: Sequence[str]) -> str:
    """The kind of processor that a result speaks for: its widest integer instructions."""
    return next((name for flag, name in KINDS.items() if flag in flags), "other")


def documents(folder: Path) -> list[dict[str, Any]]:
    """The results of every kind of processor, latest first."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("verdict-*.json"))]
    return sorted(found, key=lambda document: str(document["date"]), reverse=True)


def rows_of(case: Case, how: How) -> Iterator[Row]:
    """The float file judged once, then every method of the case."""
    net = NETS[case.net]
    feeds = {"input": net.inputs(case.batch)}
    with tempfile.TemporaryDirectory(prefix="compress-") as name:
        folder = Path(name)
        module = net.build()
        source = export(module if net.data else seeded(module), net, folder / "float.onnx")
        kernels = isolated.profile(source, feeds, how.bench, runs=100, seconds=3.0)
        judged = _judge(source, kernels, feeds, how)
        for method in case.methods:
            print(case.net, case.batch, method, end=" ", flush=True)
            probed = probe(source, method, feeds, how.bench, how.probe_seconds, kernels)
            target = make(source, folder / f"{method}.onnx", net, method)
            row = row_of(case, method, judged, probed, _measure(source, target, feeds, method, how))
            print(_cells(row)[3:], flush=True)
            yield row


def _judge(source: Path, kernels: Sequence[dict[str, Any]], feeds: dict[str, Any], how: How) -> Judged:
    calls = isolated.compare_files(source, source, feeds, how.bench)["b_ms"]
    middle = isolated.latency_values(calls, len(feeds["input"]))["latency_p50_ms"]
    # Too few calls for an interval, as in a quick run: the extremes.
    low, high = middle.low or min(calls), middle.high or max(calls)
    whole = Interval(value=float(np.median(calls)), low=low, high=high, n=len(calls))
    timed = Timed(end_to_end_ms=whole, kernels=kernels, batch=len(feeds["input"]))
    ceilings = ceilings_of_this_machine(how.bench.threads, print)
    return judge_file(source, timed, ceilings, ASKED, {name: values.shape for name, values in feeds.items()})


def _measure(source: Path, target: Path, feeds: dict[str, Any], method: str, how: How) -> Interval:
    """How many times faster the method's own file is, per sample, interleaved with the float file."""
    chosen = METHODS[method]
    if chosen.kind != "batch":
        return Interval(**isolated.compare_files(source, target, feeds, how.bench)["ratio"])
    many = int(chosen.amount)
    ratio = isolated.time_in_turns(source, source, feeds, how.bench, how.turn_seconds, (1, many))["ratio"]
    return Interval(**{end: ratio[end] * many for end in ("value", "low", "high")}, n=ratio["n"])


def row_of(case: Case, method: str, judged: Judged, probed: ProbeResult, measured: Interval) -> Row:
    """Predictions beside what was measured."""
    by_name = {one.name: one for one in judged.predictions}
    predicted = by_name[next(name for name in PREDICTIONS[method] if name in by_name)]
    decides = probed.speedup is not None and probed.covered_share >= LEAST_COVERED
    answer = probed.speedup.value if probed.speedup is not None and decides else predicted.expected
    reached = {sign_of(end) for end in (measured.low, measured.value, measured.high)}
    return Row(
        net=case.net, batch=case.batch, method=method, class_=judged.verdict.class_,
        hard=predicted.hard, expected=predicted.expected, probe=probed.as_dict(), measured=measured,
        answer=answer, answered_by="probe" if decides else "expected",
        sign_right=sign_of(answer) in reached, sign_strict=sign_of(answer) == sign_of(measured.value),
        expected_sign_right=sign_of(predicted.expected) in reached,
        hard_held=predicted.hard is None or measured.low <= predicted.hard,
    )  # fmt: skip


def sign_of(speedup: float) -> Sign:
    """faster, slower, or within the dead band."""
    if speedup > DEAD_BAND:
        return "faster"
    return "slower" if speedup < 1 / DEAD_BAND else "same"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts and the distance of answers from what was measured, |predicted / measured - 1|."""
    probed = [(row.probe["speedup"]["value"], row.measured.value) for row in rows if row.answered_by == "probe"]
    expected = [(row.expected, row.measured.value) for row in rows]
    return {
        "rows": len(rows),
        "hard_held": sum(row.hard_held for row in rows),
        "sign_right": sum(row.sign_right for row in rows),
        "sign_strict": sum(row.sign_strict for row in rows),
        "expected_sign_right": sum(row.expected_sign_right for row in rows),
        "probed": len(probed),
        "probe_error": _distance(probed),
        "expected_error": _distance(expected),
    }


def _distance(pairs: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    return {"median": float(np.median(errors)), "largest": max(errors), "n": len(errors)} if errors else None


def with_tables(page: str, known: Sequence[dict[str, Any]]) -> str:
    """The page with everything between its markers made anew: a section for each kind of processor."""
    before, rest = page.split(START)
    sections = "\n\n".join(map(_section, known))
    return f"{before}{START}\n{sections}\n{END}{rest.split(END)[1]}"


def _section(document: dict[str, Any]) -> str:
    head = [
        "net",
        "batch",
        "method",
        "class",
        "at most",
        "expected",
        "probe",
        "measured (blocks)",
        "sign",
        "bound held",
    ]
    lines = [head, ["---"] * len(head), *(_cells(row) for row in rows_in(document))]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    kind = kind_of(document["machine"]["flags"])
    return f"## {TITLES[kind]}\n\n{_sentence(document)}\n\n{table}"


def with_short_table(readme: str, document: dict[str, Any]) -> str:
    """The README with the answer beside the truth."""
    lines = [["net", "batch", "method", "at most", "compress said", "measured", "right"], ["---"] * 7]
    for row in rows_in(document):
        cells, right = _cells(row), "yes" if row.sign_right and row.hard_held else "**no**"
        measured = cells[7].rpartition(" ")[0]
        lines.append([*cells[:3], cells[4], f"{row.answer:.2f} ({row.answered_by})", measured, right])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    before, rest = readme.split(README_START)
    return f"{before}{README_START}\n{_sentence(document)}\n\n{table}\n{README_END}{rest.split(README_END)[1]}"


def rows_in(document: dict[str, Any]) -> list[Row]:
    return [Row(**(one | {"measured": Interval(**one["measured"])})) for one in document["rows"]]


def _sentence(document: dict[str, Any]) -> str:
    found, machine, used = document["summary"], document["machine"], document["versions"]
    errors = [
        f"{name}/measured - 1: median {one['median']:.1%}, at most {one['largest']:.0%} (n={one['n']})"
        for name, one in (("probe", found["probe_error"]), ("expected", found["expected_error"]))
        if one
    ]
    runtime = next((f"{name} {version}" for name, version in used.items() if name.startswith("onnxruntime")), "")
    return (
        f"{document['date'][:10]}, {machine['name']}, {document['threads']} thread, {runtime}. "
        f"Bounds held: {found['hard_held']} of {found['rows']}. Sign right: {found['sign_right']} of {found['rows']} "
        f"({found['sign_strict']} by the values alone; by the expectation alone {found['expected_sign_right']}). "
        f"{'; '.join(errors)}."
    )


def _cells(row: Row) -> list[str]:
    probed = row.probe["speedup"]
    told = f"{probed['value']:.2f} [{probed['low']:.2f}, {probed['high']:.2f}]" if probed else "-"
    told += f", {row.probe['covered_share']:.0%}" if probed and row.probe["covered_share"] < 1 else ""
    measured = f"{row.measured.value:.2f} [{row.measured.low:.2f}, {row.measured.high:.2f}] ({row.measured.n})"
    return [
        row.net, str(row.batch), row.method, row.class_, "-" if row.hard is None else f"{row.hard:.1f}",
        f"{row.expected:.2f}", told, measured, "right" if row.sign_right else "**wrong**",
        "held" if row.hard_held else "**broken**",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
