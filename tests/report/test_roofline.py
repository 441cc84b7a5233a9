"""The roofline: same bytes twice, names as text, one point per operator that computes, with and without times."""

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from report_samples import report_dict

from compress.device.devices import device_named, device_rows
from compress.report.html import render_html
from compress.report.roofline import roofline_png, roofline_svg, roofs_of
from compress.report.schema import Report

HERE = {
    "name": "here",
    "source": "measured on this machine",
    "flop_per_s": {
        "fp32": {"gemm": {"value": 70e9}, "conv": {"value": 80e9}, "supported": True},
        "int8": {"gemm": {"value": 150e9}, "conv": None, "supported": True},
        "bf16": {"gemm": {"value": 1e9}, "supported": True, "slower_than_fp32": True},
        "fp8": {"gemm": None, "conv": None, "supported": False},
    },
    "levels": [
        {"name": "l3", "bytes_per_s": {"read": {"value": 40e9}}},
        {"name": "dram", "bytes_per_s": {"read": {"value": 9e9}, "triad": {"value": 12e9}}},
    ],
}


def op(name: str = "layer", *, flops: int = 10**6, nbytes: int = 10**5, time_ms: float | None = None) -> dict[str, Any]:
    levels = {level: {"total_bytes": size} for level, size in (("C", nbytes // 2), ("G", nbytes), ("U", 2 * nbytes))}
    return {
        "op": "aten::linear", "module": name, "kind": "contraction", "flops": flops, "elementwise_flops": 0,
        "levels": levels, "time_ms": time_ms,
    }  # fmt: skip


def many(count: int, *, timed: bool) -> dict[str, Any]:
    sizes = itertools.cycle([10**4, 10**6, 10**8])
    return {
        "ops": [op(f"block.{i}", flops=next(sizes) + i, time_ms=0.1 + i / 100 if timed else None) for i in range(count)]
    }


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_figure_is_valid_and_the_same_twice(count: int, timed: bool) -> None:
    analysis = many(count, timed=timed)
    svg = roofline_svg(analysis, HERE)
    assert svg is not None
    ET.fromstring(svg)
    assert svg == roofline_svg(analysis, HERE)
    assert sum("block." in text for text in texts(svg)) == min(count, 5)


def test_nothing_that_computes_is_no_figure() -> None:
    assert roofline_svg({"ops": []}, HERE) is None
    assert roofline_svg({"ops": [op(flops=0)]}, HERE) is None
    assert roofline_svg({"ops": [op()]}, {"name": "unknown"}) is None


def test_a_name_stays_text() -> None:
    svg = roofline_svg({"ops": [op("<b>$x$ & y")]}, HERE)
    assert svg is not None
    assert any("<b>$x$ & y" in text for text in texts(svg))


def test_only_timed_operators_are_drawn_where_some_are_timed() -> None:
    svg = roofline_svg({"ops": [op("timed", time_ms=1.0), op("untimed")]}, HERE)
    assert svg is not None
    assert not any("untimed" in text for text in texts(svg))


def test_a_roof_is_the_faster_kernel_of_a_dtype_that_is_worth_having() -> None:
    roofs = roofs_of(HERE)
    assert roofs is not None
    assert roofs.flop_per_s == {"fp32": 80e9, "int8": 150e9}
    assert roofs.bytes_per_s == {"l3": 40e9, "dram": 12e9}
    assert roofs.allows(1.0) == 12e9
    assert roofs.allows(1e6) == 80e9


@pytest.mark.parametrize("name", [row.name for row in device_rows()][:4])
def test_a_device_from_a_sheet_has_a_figure(name: str) -> None:
    assert roofline_svg(many(3, timed=False), device_named(name).as_dict())


def test_the_same_figure_is_a_picture_file(tmp_path: Path) -> None:
    found = roofline_png(many(3, timed=True), HERE, tmp_path / "roofline.png")
    assert found is not None
    assert found.read_bytes().startswith(b"\x89PNG")
    assert roofline_png({"ops": []}, HERE, tmp_path / "none.png") is None


@pytest.mark.parametrize("device", [HERE, {"ceilings": HERE}, None])
def test_the_page_has_a_roofline_where_the_device_is_known(device: dict[str, Any] | None) -> None:
    document = report_dict([])
    document["analysis"] = many(3, timed=True) | {"device": device}
    page = render_html(Report.model_validate(document))
    assert ("Roofline on here" in page) == (device is not None)
    assert ('id="roofline"' in page) == (device is not None)
