"""The table of devices: dense rates, plausible bandwidths, names that help."""

import pytest

from compress.device.ceilings import Ceilings
from compress.device.devices import Row, device_named, device_rows
from compress.errors import InputError

ROWS = {row.name: row for row in device_rows()}
GPUS = [row for row in device_rows() if row.cpu is None]
CPUS = [row for row in device_rows() if row.cpu is not None]
NVIDIA = [row for row in GPUS if row.source.startswith("NVIDIA")]
# FLOP per byte in 16 bits at which the sheets' dense rates meet their bandwidths, computed by hand from the sheets.
RIDGES = {
    "t4": 203, "a10": 208, "l4": 403, "l40s": 419, "a100-40": 201, "a100-80-sxm": 153, "a100-80-pcie": 161,
    "h100-sxm": 295, "h100-pcie": 378, "h100-nvl": 214, "h200": 206, "b200": 281, "jetson-agx-orin": 208, "mi300x": 247,
}  # fmt: skip


def by_name(row: Row) -> str:
    return row.name


@pytest.mark.parametrize("row", GPUS, ids=by_name)
def test_int8_is_twice_fp16(row: Row):
    assert row.per_s["int8"] == pytest.approx(2 * row.per_s["fp16"], rel=0.03)


@pytest.mark.parametrize("row", [row for row in NVIDIA if "tf32" in row.per_s], ids=by_name)
def test_fp16_is_twice_tf32(row: Row):
    assert row.per_s["fp16"] == pytest.approx(2 * row.per_s["tf32"], rel=0.03)


@pytest.mark.parametrize("row", GPUS, ids=by_name)
def test_equal_widths_have_equal_rates_and_four_bits_twice_that_of_eight(row: Row):
    rates = row.per_s
    assert rates.get("bf16", rates["fp16"]) == rates["fp16"]
    assert rates.get("fp8", rates["int8"]) == rates["int8"]
    for four in ("int4", "fp4"):
        assert rates.get(four, 2 * rates["int8"]) == pytest.approx(2 * rates["int8"])


@pytest.mark.parametrize("row", [row for row in GPUS if row.name in RIDGES], ids=by_name)
def test_the_ridge_is_that_of_dense_rates(row: Row):
    assert device_named(row.name).ridge("fp16") == pytest.approx(RIDGES[row.name], rel=0.03)


def test_only_the_device_without_a_known_ridge_is_left_out():
    assert {row.name for row in GPUS} - RIDGES.keys() == {"jetson-orin-nano-super"}


@pytest.mark.parametrize("row", device_rows(), ids=by_name)
def test_units_are_plausible(row: Row):
    assert 50e9 <= row.bandwidth_bytes_per_s <= 20e12
    assert all(1e12 <= rate <= 20e15 for rate in row.rates().values())
    assert row.memory_bytes is None or 4e9 <= row.memory_bytes <= 400e9
    assert len(row.source) > 20


@pytest.mark.parametrize("row", CPUS, ids=by_name)
def test_a_cpu_is_cores_times_clock_times_operations(row: Row):
    assert row.cpu is not None
    found = device_named(row.name)
    assert (found.source, found.confidence) == ("formula", "formula")
    expected = row.cpu.cores * row.cpu.per_cycle["fp32"] * row.cpu.ghz * 1e9
    assert found.peak("fp32") == pytest.approx(expected)
    assert 2.0 <= row.cpu.ghz <= 4.0


def test_published_differences_between_variants_are_kept():
    bandwidth = {name: row.bandwidth_bytes_per_s for name, row in ROWS.items()}
    assert bandwidth["a100-40"] < bandwidth["a100-80-pcie"] < bandwidth["a100-80-sxm"]
    assert ROWS["h200"].per_s == ROWS["h100-sxm"].per_s
    assert bandwidth["l4"] == 300e9
    assert "bf16" not in ROWS["t4"].per_s


def test_names_are_unique_and_lower_case():
    names = [row.name for row in device_rows()]
    assert sorted({name.lower() for name in names}) == sorted(names)


@pytest.mark.parametrize("row", device_rows(), ids=by_name)
def test_a_row_becomes_ceilings_of_a_sheet(row: Row):
    found = device_named(row.name.upper())
    assert found.source in ("datasheet", "formula")
    assert found.confidence == row.confidence
    assert found.bandwidth() == row.bandwidth_bytes_per_s
    assert 0 < found.achievable.gemm < 1
    assert found.threads is None
    assert Ceilings.from_dict(found.as_dict()) == found


def test_sheets_never_lower_the_roof_by_what_kernels_usually_achieve():
    assert device_named("h100-sxm").peak("fp16") == 989.4e12


def test_a_misspelt_device_is_corrected_and_the_others_are_listed():
    with pytest.raises(InputError) as caught:
        device_named("h100-smx")
    assert str(caught.value).startswith(
        "device h100-smx: no device has this name. Did you mean 'h100-sxm'? Known: t4, "
    )
    assert all(name in str(caught.value) for name in ROWS)


def test_a_family_of_devices_is_answered_with_its_members():
    with pytest.raises(InputError, match=r"Did you mean 'h100-sxm' or 'h100-pcie' or 'h100-nvl'\?"):
        device_named("H100")
