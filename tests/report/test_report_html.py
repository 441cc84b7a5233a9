"""The page: whole, safe, self-contained, the same twice, and never half written."""

import itertools
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import HOSTILE, SAMPLES, sample

from compress import files
from compress.errors import EnvironmentProblem, InputError
from compress.report.html import render_html, render_run

VOID = {"meta", "br", "link", "img", "input", "hr"}
MAX_BYTES = 400_000


class Page(HTMLParser):
    """Tags, attributes and text of a page; `errors` lists tags that do not balance."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.errors: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        self.errors += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> closes nothing at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.text += data if not self.open or self.open[-1] != "style" else ""


@pytest.mark.parametrize("name", SAMPLES)
def test_tags_balance_and_ids_are_unique(name: str, pages: dict[str, str]) -> None:
    page = Page(pages[name])
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert page.errors == []
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_candidate_and_gate_is_on_the_page(name: str, pages: dict[str, str]) -> None:
    text = Page(pages[name]).text
    for candidate in sample(name).candidates:
        assert candidate.name.replace("\x1b", "\ufffd") in text
    assert sample(name).reason.replace("\x1b", "\ufffd") in text


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_asks_nothing_of_the_network(name: str, pages: dict[str, str]) -> None:
    for tag, attrs in Page(pages[name]).tags:
        assert tag not in {"script", "iframe", "img", "object", "embed", "form", "base"}
        for key in ("src", "href", "xlink:href", "action"):
            assert re.fullmatch(r"#[\w-]+|report\.json|", attrs.get(key) or ""), (tag, key, attrs)
        assert not any(key.startswith("on") for key in attrs)
    assert "url(http" not in pages[name]
    assert "@import" not in pages[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_stays_small(name: str, pages: dict[str, str]) -> None:
    assert len(pages[name].encode()) < MAX_BYTES


def test_hostile_text_is_shown_as_text(pages: dict[str, str]) -> None:
    assert "<script" not in pages["hostile"]
    assert "\x1b" not in pages["hostile"]
    assert Page(pages["hostile"]).text.count(HOSTILE.replace("\x1b", "\ufffd")) > 10


@pytest.mark.parametrize("name", ["passing", "unmeasured"])
def test_the_same_report_gives_the_same_page(name: str, pages: dict[str, str]) -> None:
    assert render_html(sample(name)) == pages[name]


def test_headings_descend_one_level_at_a_time(pages: dict[str, str]) -> None:
    for page in pages.values():
        levels = [int(tag[1]) for tag, _ in Page(page).tags if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_skip_link_and_the_labels_lead_somewhere(pages: dict[str, str]) -> None:
    page = Page(pages["passing"])
    ids = {attrs.get("id") for _, attrs in page.tags}
    pointed = [
        (attrs.get("href") or "#")[1:] for tag, attrs in page.tags if tag == "a" and attrs["href"] != "report.json"
    ]
    pointed += [str(attrs["aria-labelledby"]) for _, attrs in page.tags if "aria-labelledby" in attrs]
    assert pointed
    assert set(pointed) <= ids


def test_what_was_not_measured_says_so(pages: dict[str, str]) -> None:
    text = Page(pages["unmeasured"]).text
    for said in ("Analysis: not measured", "Baselines: not measured", "Confirm split: not measured"):
        assert said in text
    assert "None" not in text


@pytest.mark.parametrize("name", SAMPLES)
def test_the_outcome_stands_as_a_word(name: str, pages: dict[str, str]) -> None:
    badge = re.search(r'<span class="badge (\w+)">(\S) (\w+)</span>', pages[name])
    assert badge is not None
    assert badge[1] == badge[3] == sample(name).outcome


def test_values_of_the_page_are_those_of_the_report(pages: dict[str, str]) -> None:
    text = Page(pages["passing"]).text
    for said in ("0.7500", "[0.7300, 0.7700]", "n=800", "1.70x", "[1.62, 1.78]", "27.5 dB", "QLinearConv 19", "33 GB"):
        assert said in text


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({**SAMPLES["empty"](), "reason": "odd \ud800 end"}))
    assert "odd" in render_run(tmp_path).read_text(encoding="utf-8")


def test_rendering_a_run_writes_beside_its_report(tmp_path: Path, pages: dict[str, str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(SAMPLES["empty"]()))
    assert render_run(tmp_path) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == pages["empty"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_writer_leaves_the_old_page(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "report.json").write_text(json.dumps(SAMPLES["empty"]()))
    (tmp_path / "report.html").write_text("the old page")
    monkeypatch.setattr(files.os, broken, no_space)
    with pytest.raises(EnvironmentProblem, match=r"report\.html: no space left on the disk"):
        render_run(tmp_path)
    assert (tmp_path / "report.html").read_text() == "the old page"
    assert sorted(os.listdir(tmp_path)) == ["report.html", "report.json"]


def test_a_run_without_a_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        render_run(tmp_path)
