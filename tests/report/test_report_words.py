"""Numbers and names in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from compress.report import words
from compress.report.schema import JudgedGate, Measured


@given(st.text(max_size=120), st.integers(min_value=1, max_value=60))
def test_a_shortened_name_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = words.shorten(text, width)
    assert cell_len(short) <= width
    if short != text:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)


@given(st.text())
def test_one_line_is_printable_and_on_one_line(text: str) -> None:
    assert words.one_line(text).isprintable()


@given(st.floats(min_value=1e-4, max_value=9.9e5))
def test_three_digits_stay_within_half_a_percent(value: float) -> None:
    assert float(words.significant(value)) == pytest.approx(value, rel=0.005)


@given(st.floats(min_value=1, max_value=9e14))
def test_a_scaled_value_reads_back(value: float) -> None:
    number, _, prefix = words.scaled(value, "").partition(" ")
    factor = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[prefix]
    assert float(number) * factor == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("speedup", 1.504, "1.50x"),
        ("size_bytes", 2_810_000, "2.81 MB"),
        ("params", 999_700, "1 M"),
        ("latency_p50_ms", 1.3, "1.30 ms"),
        ("throughput_per_s", 769.2, "769 /s"),
        ("sqnr_db", 31.04, "31.0 dB"),
        ("top1", 0.90812, "0.9081"),
        ("top1", 1.0, "1.0000"),
        ("my_loss", 12.345, "12.3"),
        ("top1", None, "not measured"),
    ],
)
def test_a_figure_carries_its_unit(metric: str, value: float | None, said: str) -> None:
    assert words.figure(metric, value) == said


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (Measured(value=0.5, n=10, low=0.4, high=0.6), "0.5000 [0.4000, 0.6000] (n=10)"),
        (Measured(value=0.5, n=10, high=0.6), "0.5000 (at most 0.6000) (n=10)"),
        (Measured(value=0.5, n=10, low=0.4), "0.5000 (at least 0.4000) (n=10)"),
        (Measured(value=None, n=3, note="too few"), "too few"),
        (Measured(value=None), "not measured"),
        (None, "not measured"),
    ],
)
def test_a_value_comes_with_its_evidence(measured: Measured | None, said: str) -> None:
    assert words.evidence("top1", measured) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (131.2, "2 min 11 s"),
        (3599.9, "1 h 0 min"),
        (None, "not measured"),
    ],
)
def test_a_duration_in_words(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said


def test_an_undecided_gate_says_how_much_more_would_decide() -> None:
    gate = JudgedGate(
        metric="top1", limit="max_drop", threshold=0.01, outcome="undecided", needed_n=5200, note="too few"
    )
    assert words.gate_note(gate) == "too few; about 5200 would decide"
