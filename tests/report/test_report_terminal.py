"""The terminal view: the answer first, every line within the console, nothing left to colour alone."""

import io

import pytest
from report_samples import SAMPLES, sample
from rich.cells import cell_len
from rich.console import Console

from compress.report.terminal import print_report


def printed(name: str, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    print_report(sample(name), console, "runs/invented/2031-02-03T04-05-06")
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_the_console(name: str, width: int) -> None:
    assert max(cell_len(line) for line in printed(name, width).splitlines()) <= width


@pytest.mark.parametrize(
    ("name", "first"),
    [("passing", "✓ PASS"), ("failing", "✗ FAIL"), ("undecided", "? UNDECIDED"), ("stopped", "■ STOPPED")],
)
def test_the_outcome_stands_first_as_symbol_and_word(name: str, first: str) -> None:
    assert printed(name).startswith(first)


@pytest.mark.parametrize("width", [80, 120])
def test_every_candidate_has_its_row_and_the_winner_its_mark(width: int) -> None:
    text = printed("twelve", width)
    for candidate in sample("twelve").candidates:
        scheme = candidate.name.removeprefix("ptq/")
        mark = "★" if candidate.name == sample("twelve").winner else " "
        assert f"{mark} {scheme} " in text


def test_a_value_stands_with_its_interval_and_n() -> None:
    wide = printed("passing", 120)
    assert "0.7500 n=800 [0.7300, 0.7700]" in wide
    assert "1.70x n=40 [1.62, 1.78]" in wide


def test_a_refused_candidate_says_why() -> None:
    assert "ptq/s8s8-channel: the runtime refused the file: no kernel" in printed("passing", 120)


def test_the_best_so_far_is_named_when_nothing_won() -> None:
    text = printed("failing")
    assert "Best so far: ptq/u8u8-tensor" in text
    assert "Gates of ptq/u8u8-tensor (best so far)" in text


def test_text_without_a_terminal_is_plain() -> None:
    out = io.StringIO()
    print_report(sample("hostile"), Console(file=out, width=80))
    assert "\x1b" not in out.getvalue()


def test_no_color_keeps_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    print_report(sample("passing"), Console(file=out, width=80, force_terminal=True))
    assert "\x1b[32m" not in out.getvalue()
    assert "\x1b[1;32m" not in out.getvalue()
    assert "✗ fail" in out.getvalue()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_terminal_without_unicode_gets_ascii(name: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80)
    print_report(sample(name), console)
    console.file.flush()
    assert raw.getvalue().decode("ascii").strip()


def test_markup_in_a_name_is_printed_not_obeyed() -> None:
    assert "[red]" in printed("hostile", 120)
