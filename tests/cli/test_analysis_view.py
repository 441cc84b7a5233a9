"""The analysis in the terminal: fits 100 columns, times beside bounds, movement and contradicting probes called out."""

import torch
from torch import nn

from compress.analyze.classes import Measured
from compress.analyze.methods import Asked
from compress.analyze.trace import trace
from compress.cli.analysis_view import show
from compress.device.devices import device_named
from compress.measure.stats import Interval
from compress.probe.probe import ProbeResult
from compress.stages.probed import Probes, with_probes
from compress.stages.verdict import judge_table, with_ceilings


class Shuffles(nn.Module):
    """Long module names, a product, and a copy."""

    def __init__(self):
        super().__init__()
        self.a_rather_long_name_of_a_block = nn.ModuleDict({"with_a_longer_part": nn.Linear(256, 256)})

    def forward(self, x):
        y = self.a_rather_long_name_of_a_block["with_a_longer_part"](x)
        return y.transpose(1, 2).contiguous()


def shown(capsys, probes=None, times_ms=(6.0, 4.0)) -> list[str]:
    table = trace(Shuffles(), (torch.ones(1, 64, 256),))
    heavy = [op for op in table.ops if op.kind in ("contraction", "move")]
    rows = [{"module": op.module, "op": op.op, "time_ms": ms} for op, ms in zip(heavy, times_ms, strict=True)]
    measured = Measured(runtime="torch", end_to_end_ms=Interval(value=10.0, low=9.9, high=10.1, n=99), ops=rows)
    ceilings = device_named("t4")
    results = Probes(results=probes or {})
    judged = judge_table(table, ceilings, measured, Asked(probes=results.spans))
    show(with_probes(with_ceilings(judged, ceilings), results))
    return capsys.readouterr().out.splitlines()


def result(low, high, covered=0.9, n=9):
    speedup = Interval(value=(low + high) / 2, low=low, high=high, n=n)
    return ProbeResult(method="m", speedup=speedup, covered_share=covered, seconds=1.0, note="timed")


def test_operators_are_shown_with_class_time_bound_ratio_intensity_and_work(capsys):
    lines = shown(capsys)
    head = next(line for line in lines if line.startswith("operator"))
    assert head.split() == ["operator", "kind", "class", "ms", "bound", "x", "bound", "FLOP/B", "macs"]
    row = lines[lines.index(head) + 1].split()
    assert row[0].endswith("_part")
    assert row[0].startswith("…")
    assert row[1:4] == ["contraction", "kernel-limited", "6"]
    # 2 * 64 * 256 * 256 FLOP at 8.1e12 a second, against 6 ms.
    assert float(row[5]) == round(6.0 / float(row[4]), -2) or abs(float(row[5]) * float(row[4]) / 6.0 - 1) < 0.02
    assert row[-1] == "4.19M"


def test_tables_fit_a_hundred_columns(capsys):
    probes = {"int8 W8A8": result(0.5, 0.6, covered=0.2), "prune 50%": result(90.0, 99.0)}
    lines = shown(capsys, probes)
    tables = [line for line in lines if line.startswith(("operator", "…", "int8", "prune", "compute", "method"))]
    assert len(tables) >= 6
    assert all(len(line) <= 100 for line in tables)


def test_movement_is_called_out_with_the_operators_that_move(capsys):
    lines = shown(capsys)
    line = next(line for line in lines if line.startswith("movement:"))
    assert "40% of the time" in line
    assert "contiguous" in line
    assert next(line for line in lines if line.startswith("time is in: ")).startswith("time is in: kernel-limited 60%")


def test_a_model_that_moves_little_is_not_warned_about_movement(capsys):
    assert not any(line.startswith("movement:") for line in shown(capsys, times_ms=(9.5, 0.5)))


def test_a_probe_that_contradicts_the_expectation_says_so_and_how_little_it_covers(capsys):
    lines = shown(capsys, {"int8 W8A8": result(0.5, 0.6, covered=0.2), "half-depth student": result(1.0, 1.0, n=1)})
    line = next(line for line in lines if line.startswith("int8 W8A8"))
    assert "0.55x [0.50, 0.60], covers only 20%: less than expected" in line
    assert line.split()[-1] == "warn"
    assert "(estimate)" in next(line for line in lines if line.startswith("half-depth student"))


def test_without_probes_there_is_no_column_for_them(capsys):
    head = next(line for line in shown(capsys) if line.startswith("method"))
    assert "probe" not in head
