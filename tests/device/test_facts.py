"""What the machine is: read from what the system says, whatever it says."""

import json
import os
from importlib.metadata import PackageNotFoundError, version

import pytest

from compress.device import facts

ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n"
AVX2 = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz: fast\nflags\t\t: fpu avx2 fma\n"
VNNI = "processor\t: 0\nmodel name\t: New CPU\nflags\t\t: avx2 avx512f avx512_vnni\n"


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files of /proc and /sys by path; those not set are missing."""
    files: dict[str, str] = {}
    monkeypatch.setattr(facts, "_text", lambda path: files.get(path, ""))
    return files


@pytest.mark.parametrize(
    ("cpuinfo", "flags", "word", "saturates"),
    [
        (ARM, ["asimddp", "i8mm"], "cannot saturate", False),
        (AVX2, ["avx2"], "7-bit weights are tried first", True),
        (VNNI, ["avx2", "avx512f", "avx512_vnni"], "cannot saturate", False),
        ("flags : fpu sse2\n", [], "int8 may not be faster", False),
    ],
)
def test_flags_decide_what_int8_means(
    system: dict[str, str], cpuinfo: str, flags: list[str], word: str, saturates: bool
):
    system["/proc/cpuinfo"] = cpuinfo
    found = facts.cpu_facts()
    assert sorted(found["flags"]) == sorted(flags)
    assert word in found["int8"]
    assert facts.saturates(found["flags"]) is saturates
    assert found["name"]


def test_a_name_with_a_colon_is_kept_whole(system: dict[str, str]):
    system["/proc/cpuinfo"] = AVX2
    assert facts.cpu_facts()["name"] == "Some CPU @ 2.0GHz: fast"


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("", 8), ("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8), ("max", 8)],
)
def test_cores_are_those_this_process_may_use(
    system: dict[str, str], monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
):
    monkeypatch.setattr(facts.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    system["/sys/fs/cgroup/cpu.max"] = quota
    assert facts.usable_cores() == cores


def test_pressure_is_read_where_the_system_tells_it(system: dict[str, str]):
    system["/proc/pressure/cpu"] = "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00\n"
    system["/proc/pressure/io"] = "unreadable"
    found = facts.pressure()
    assert found["cpu_some_avg10"] == 12.5
    assert "memory_some_avg10" not in found
    assert "io_some_avg10" not in found


def test_a_fingerprint_tells_machines_apart_and_not_their_load(system: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    system["/proc/cpuinfo"] = AVX2
    first = facts.fingerprint()
    system["/proc/pressure/cpu"] = "some avg10=99.00 avg60=1.00 avg300=0.00 total=1\n"
    assert facts.fingerprint() == first
    monkeypatch.setattr(facts, "usable_cores", lambda: 99)
    assert facts.fingerprint() != first
    monkeypatch.undo()
    assert facts.fingerprint() == facts.fingerprint()


def test_versions_are_those_installed():
    found = facts.versions()
    assert found["numpy"] == version("numpy")
    assert found["python"].startswith("3.")
    for name in facts.PACKAGES:
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        assert found.get(name) == installed


def test_this_machine_can_be_described_as_plain_data():
    found = {"cpu": facts.cpu_facts(), "pressure": facts.pressure(), "memory": facts.memory_bytes()}
    assert json.loads(json.dumps(found)) == found
    assert 1 <= found["cpu"]["cores"] <= (os.cpu_count() or 1)
    assert found["memory"] > 0
