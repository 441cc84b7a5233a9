"""Figures: the same bytes twice, valid XML, every candidate named, no label on another."""

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import SAMPLES, candidate, report_dict, sample

from compress.report import plots, words
from compress.report.labels import overlap, place_labels
from compress.report.pareto import dominated, pareto_svg
from compress.report.schema import Report

FIGURES = (plots.pareto_svg, plots.latency_svg, plots.ops_svg, plots.audit_svg)
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def figures(page: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_figure_is_valid_and_says_in_words_what_it_shows(name: str, pages: dict[str, str]) -> None:
    for svg in figures(pages[name]):
        root = ET.fromstring(svg)
        assert root.get("aria-label")
        assert root.findtext(f"{SVG}title")
        assert root.findtext(f"{SVG}desc")
        assert {each.tag.removeprefix(SVG) for each in root.iter()}.isdisjoint({"script", "style", "metadata", "image"})


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_is_the_same_twice(draw: Callable[[Report], str | None]) -> None:
    assert draw(sample("twelve")) == draw(sample("twelve"))


@pytest.mark.parametrize("name", ["passing", "twelve", "two_batches", "unicode"])
def test_every_measured_candidate_is_named_in_three_figures(name: str, pages: dict[str, str]) -> None:
    shown = [" ".join(texts(svg)) for svg in figures(pages[name])]
    for each in sample(name).candidates:
        if each.metrics:
            assert sum(words.shorten(each.name, 26) in text for text in shown) == 3


def test_nothing_to_draw_is_none() -> None:
    report = sample("empty").model_copy(update={"analysis": None})
    assert [draw(report) for draw in FIGURES] == [None] * 4


def test_references_inside_a_figure_point_at_its_own_ids(pages: dict[str, str]) -> None:
    for svg in figures(pages["passing"]):
        root = ET.fromstring(svg)
        ids = {each.get("id") for each in root.iter() if each.get("id")}
        used = {each.get("href", "#")[1:] for each in root.iter(f"{SVG}use")} | set(re.findall(r"url\(#(.*?)\)", svg))
        assert used
        assert used <= ids


def test_a_forest_has_one_row_for_each_candidate_and_batch() -> None:
    rows = [text for text in texts(plots.latency_svg(sample("two_batches")) or "") if "batch" in text]
    assert rows == [
        "ptq/u8s8-channel, batch 1",
        "ptq/u8s8-channel, batch 16",
        "ptq/u8u8-tensor, batch 1",
        "ptq/u8u8-tensor, batch 16",
    ]


def test_gates_are_drawn_and_named() -> None:
    shown = texts(pareto_svg(sample("passing")) or "")
    assert "gate: top1 drop at most 0.02" in shown
    assert "gate: speed-up at least 1.40x" in shown


def test_a_drop_gate_is_not_drawn_where_the_better_direction_is_unknown() -> None:
    record = report_dict([candidate("ptq/a")])
    record["recipe"]["gates"][0]["metric"] = "wer"
    for owner in [*record["candidates"], *record["baselines"]]:
        owner["metrics"] = {"wer" if key == "top1" else key: value for key, value in owner["metrics"].items()}
    drop = "gate: wer drop at most 0.02"
    assert drop not in texts(pareto_svg(Report.model_validate(record)) or "")
    record["recipe"]["metric_direction"] = "lower"
    assert drop in texts(pareto_svg(Report.model_validate(record)) or "")


def test_a_candidate_is_dominated_only_by_one_of_no_worse_outcome() -> None:
    front, behind = candidate("front", top1=0.76, speedup=1.9), candidate("behind", top1=0.75, speedup=1.8)
    traded = candidate("traded", top1=0.70, speedup=2.5)
    assert dominated(Report.model_validate(report_dict([front, behind, traded]))) == {"behind"}
    front["outcome"] = "fail"
    assert dominated(Report.model_validate(report_dict([front, behind, traded]))) == set()


def test_two_equal_candidates_do_not_dominate_each_other() -> None:
    assert dominated(Report.model_validate(report_dict([candidate("one"), candidate("two")]))) == set()


AREA = (0.0, 0.0, 700.0, 400.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 700), st.floats(0, 400)), min_size=1, max_size=13))
def test_labels_stay_inside_and_off_each_other(points: list[tuple[float, float]]) -> None:
    boxes = place_labels(points, [(150.0, 15.0)] * len(points), AREA, [])
    assert all(overlap(one, other) == 0 for one, other in itertools.combinations(boxes, 2))
    assert all(left >= 0 and bottom >= 0 and right <= 700 and top <= 400 for left, bottom, right, top in boxes)


def test_a_label_keeps_off_an_obstacle_beside_its_point() -> None:
    wall = (305.0, 150.0, 500.0, 250.0)
    (box,) = place_labels([(300.0, 200.0)], [(100.0, 15.0)], AREA, [wall])
    assert overlap(box, wall) == 0
