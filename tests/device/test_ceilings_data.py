"""Ceilings as data: what they answer, how they are written, when a cached file counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.device import cached
from compress.device.cached import cache_folder, cache_path, kernel_versions, load_ceilings, save_ceilings
from compress.device.ceilings import MEASURED, Ceilings, Contention, Figure, Level, Rate
from compress.device.facts import fingerprint
from compress.device.levels import USUAL_BYTES, cache_bytes, llc_bytes
from compress.errors import InputError


def figure(value: float) -> Figure:
    return Figure(value=value, how="a kernel", spread=0.01, n=5, wall_over_cpu=1.0)


def machine() -> Ceilings:
    levels = [("l2", 1 << 19, 50e9), ("l3", 1 << 25, 60e9), ("dram", None, 15e9)]
    return Ceilings(
        name="a machine",
        source=MEASURED,
        confidence="measured",
        threads=1,
        flop_per_s={
            "fp32": Rate(gemm=figure(70e9), conv=figure(80e9)),
            "int8": Rate(gemm=figure(160e9)),
            "fp16": Rate(gemm=figure(1e9), slower_than_fp32=True),
            "bf16": Rate(supported=False, note="no kernel"),
        },
        levels=tuple(
            Level(name=name, size_bytes=size, bytes_per_s={"read": figure(best), "copy": figure(best / 2)})
            for name, size, best in levels
        ),
        dispatch_ns={"add": figure(2000.0)},
        node_ns=figure(500.0),
        moves_bytes_per_s={"transpose": figure(4e9)},
        memory_bytes=8 << 30,
        fingerprint=fingerprint(),
        date="2031-02-03T04:05:06+00:00",
        versions=kernel_versions(),
        contention=Contention(wall_over_cpu=1.0, before={"load1": 0.1}, after={}),
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_roof_is_the_faster_of_product_and_convolution():
    assert machine().peak("fp32") == 80e9
    assert machine().ratio("int8") == 2.0


def test_what_has_no_kernel_has_no_peak():
    assert machine().peak("bf16") is None
    assert machine().peak("fp8") is None
    assert machine().ridge("bf16") is None


def test_a_nearer_level_is_never_slower_than_a_further_one():
    assert [machine().bandwidth(level) for level in ("l2", "l3", "dram")] == [60e9, 60e9, 15e9]


def test_an_unknown_level_is_an_error_that_lists_the_known():
    with pytest.raises(InputError, match=r"no memory level 'l9' is known. Known levels: l2, l3, dram"):
        machine().bandwidth("l9")


@pytest.mark.parametrize(("resident", "level"), [(0, "l3"), (1 << 24, "l3"), ((1 << 24) + 1, "dram")])
def test_a_model_lives_in_a_cache_only_when_half_of_it_is_enough(resident: int, level: str):
    assert machine().level_for(resident) == level


def test_ridge_is_peak_over_bandwidth():
    assert machine().ridge("fp32") == pytest.approx(80 / 15)


def test_marks_follow_from_spread_and_contention():
    assert replace(figure(1.0), spread=0.21).unsteady
    assert not figure(1.0).unsteady
    assert replace(figure(1.0), wall_over_cpu=1.16).contaminated
    assert not Figure(value=1.0, how="a sheet").contaminated


@given(value=st.floats(min_value=1e-3, max_value=1e18), spread=st.none() | st.floats(min_value=0, max_value=100))
def test_ceilings_survive_json(value: float, spread: float | None):
    one = Figure(value=value, how="é", spread=spread, n=None)
    found = replace(machine(), node_ns=one, dispatch_ns={"view": one})
    assert Ceilings.from_dict(json.loads(json.dumps(found.as_dict(), allow_nan=False))) == found


def test_strange_ceilings_are_refused_with_the_place():
    strange = machine().as_dict() | {"threads": "many"}
    with pytest.raises(InputError, match=r"^x\.json: threads: .*compress doctor --measure"):
        Ceilings.from_dict(strange, "x.json")


def test_what_was_saved_is_loaded():
    assert load_ceilings(1) is None
    assert save_ceilings(machine()) == cache_path(1)
    assert load_ceilings(1) == machine()
    assert load_ceilings(2) is None


def test_saving_leaves_one_file(folder: Path):
    save_ceilings(machine())
    save_ceilings(machine())
    assert [path.name for path in folder.iterdir()] == [cache_path(1).name]


@pytest.mark.parametrize(
    ("field", "value"), [("fingerprint", "sha256:other"), ("versions", {"torch": "1.0"}), ("threads", 2)]
)
def test_a_file_of_another_machine_version_or_thread_count_is_ignored(field: str, value: object):
    stale = machine().as_dict() | {field: value}
    write(json.dumps({"schema": cached.SCHEMA, "ceilings": stale}))
    assert load_ceilings(1) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "compress.ceilings/1", "ceilings": {}}'])
def test_a_damaged_file_is_ignored(text: str):
    write(text)
    assert load_ceilings(1) is None


def test_a_file_of_another_schema_is_ignored():
    write(json.dumps({"schema": "compress.ceilings/0", "ceilings": machine().as_dict()}))
    assert load_ceilings(1) is None


def test_a_busy_measurement_does_not_replace_a_quiet_one():
    quiet, busy = machine(), replace(machine(), contaminated=True)
    assert save_ceilings(busy) is not None
    assert save_ceilings(quiet) is not None
    assert save_ceilings(busy) is None
    assert load_ceilings(1) == quiet


def test_ceilings_of_another_machine_are_not_kept():
    with pytest.raises(InputError, match="not of this machine"):
        save_ceilings(replace(machine(), fingerprint="sha256:other"))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("COMPRESS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "compress"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "compress"


def test_cache_sizes_are_read_from_the_system(tmp_path: Path):
    rows = [("1", "Instruction", "64K"), ("1", "Data", "48K"), ("3", "Unified", "96M"), ("2", "Unified", "2048K")]
    for index, (level, kind, size) in enumerate(rows):
        (tmp_path / f"index{index}").mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (tmp_path / f"index{index}" / name).write_text(text + "\n")
    assert cache_bytes(tmp_path) == {"l1": 48 << 10, "l2": 2 << 20, "l3": 96 << 20}
    assert llc_bytes(tmp_path) == 96 << 20


def test_unknown_cache_sizes_are_assumed(tmp_path: Path):
    assert cache_bytes(tmp_path / "nothing") == USUAL_BYTES


def write(text: str) -> None:
    cache_path(1).parent.mkdir(parents=True, exist_ok=True)
    cache_path(1).write_text(text)
