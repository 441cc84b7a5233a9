"""`compress doctor`: each finding turns when the fact behind it turns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import compress
from compress.__main__ import main
from compress.device import cached, checkup, facts
from compress.device.ceilings import Ceilings
from compress.device.checkup import Finding
from compress.device.gpu import cuda_of_torch
from compress.errors import EnvironmentProblem

VERSIONS = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "onnx": "1.23.2",
    "onnxruntime": "1.32.0",
    "nvidia-modelopt": "0.47.0",
}
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def quiet_machine(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    answer(monkeypatch, facts, "versions", dict(VERSIONS))
    answer(monkeypatch, facts, "pressure", {"cpu_some_avg10": 0.0, "load1": 0.1})
    answer(monkeypatch, checkup, "gpus", [])
    answer(monkeypatch, checkup, "gpu_problem", "no driver")


def answer(monkeypatch: Patch, module: Any, name: str, value: object) -> None:
    monkeypatch.setattr(module, name, lambda *_: value)


def without(*names: str) -> dict[str, str]:
    return {name: version for name, version in VERSIONS.items() if name not in names}


def test_every_finding_of_a_sound_machine_is_ok(monkeypatch: Patch, tmp_path: Path):
    for look in (checkup.packages, checkup.torch_build, checkup.runtimes, checkup.providers, checkup.session):
        assert look().mark == "ok"
    for look in (checkup.cpu, checkup.pressure, checkup.modelopt):
        assert look().mark == "ok"
    assert checkup.folder(tmp_path, 0).mark == "ok"


def test_a_missing_package_fails_with_its_command(monkeypatch: Patch):
    answer(monkeypatch, facts, "versions", without("torch"))
    expected = Finding(mark="fail", what="packages", fact="missing: torch", remedy="pip install torch")
    assert checkup.packages() == expected


def test_both_runtimes_clash(monkeypatch: Patch):
    answer(monkeypatch, facts, "versions", VERSIONS | {"onnxruntime-gpu": "1.31.1"})
    found = checkup.runtimes()
    assert (found.mark, found.fact) == ("fail", "both packages share one import folder")
    assert "pip uninstall" in found.remedy


def test_no_runtime_fails(monkeypatch: Patch):
    answer(monkeypatch, facts, "versions", without("onnxruntime"))
    assert (checkup.runtimes().mark, checkup.runtimes().remedy) == ("fail", "pip install onnxruntime")


@pytest.mark.parametrize(("driver", "mark"), [(None, "ok"), ("/usr/bin/nvidia-smi", "warn")])
def test_listed_cuda_without_a_gpu_is_told_and_warns_where_a_driver_is_broken(
    driver: str | None, mark: str, monkeypatch: Patch
):
    answer(monkeypatch, checkup, "_listed_providers", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    answer(monkeypatch, checkup.shutil, "which", driver)
    found = checkup.providers()
    assert found.mark == mark
    assert found.fact.startswith("CUDA, CPU are listed, but no GPU can be used (no driver)")


def test_a_gpu_with_a_cpu_build_of_torch_warns(monkeypatch: Patch):
    answer(monkeypatch, checkup, "gpus", ["Some GPU"])
    answer(monkeypatch, checkup, "cuda_of_torch", None)
    assert checkup.torch_build().mark == "warn"
    answer(monkeypatch, checkup, "cuda_of_torch", "12.8")
    assert checkup.torch_build().mark == "ok"


def test_the_build_of_torch_is_known_without_importing_it():
    import torch

    assert cuda_of_torch() == torch.version.cuda


@pytest.mark.parametrize(
    ("text", "cuda"), [("cuda: Optional[str] = '12.8'", "12.8"), ("cuda: Optional[str] = None", None), ("", None)]
)
def test_the_cuda_of_a_build_is_read_from_its_version_file(
    text: str, cuda: str | None, tmp_path: Path, monkeypatch: Patch
):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "version.py").write_text(f"debug = False\n{text}\nhip: Optional[str] = None\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert cuda_of_torch() == cuda


def test_a_runtime_that_opens_nothing_fails(monkeypatch: Patch):
    def refuse(path: Path) -> None:
        raise AttributeError("module 'onnxruntime' has no attribute 'InferenceSession'")

    monkeypatch.setattr(checkup, "_open_tiny", refuse)
    assert checkup.session().mark == "fail"
    assert "has no attribute" in checkup.session().fact


@pytest.mark.parametrize(("flags", "word"), [(["avx2"], "saturate"), (["avx2", "avx512_vnni"], "full speed")])
def test_the_cpu_says_what_its_flags_mean_for_int8(flags: list[str], word: str, monkeypatch: Patch):
    cpu = {"name": "a cpu", "cores": 2, "flags": flags, "int8": facts.int8_sentence(flags)}
    answer(monkeypatch, facts, "cpu_facts", cpu)
    assert word in checkup.cpu().fact


def test_fewer_usable_cores_than_there_are_warns(monkeypatch: Patch):
    answer(monkeypatch, facts, "usable_cores", 2)
    answer(monkeypatch, checkup.os, "cpu_count", 64)
    expected = Finding(mark="warn", what="cores", fact="2 usable of 64", remedy="Set target.threads to at most 2")
    assert checkup.cores() == expected


@pytest.mark.parametrize("busy", [{"cpu_some_avg10": 30.0, "load1": 0.1}, {"load1": 900.0}])
def test_a_busy_machine_warns(busy: dict[str, float], monkeypatch: Patch):
    answer(monkeypatch, facts, "pressure", busy)
    assert checkup.pressure().mark == "warn"


def test_what_modelopt_does_not_declare_is_looked_for(monkeypatch: Patch):
    monkeypatch.setattr(checkup, "find_spec", lambda name: None if name == "huggingface_hub" else object())
    assert (checkup.modelopt().mark, checkup.modelopt().remedy) == ("fail", "pip install huggingface-hub")


def program(folder: Path) -> Path:
    folder.mkdir()
    (folder / "compress").write_text("#!/bin/sh\n")
    (folder / "compress").chmod(0o755)
    return folder


def test_another_program_of_our_name_warns(tmp_path: Path, monkeypatch: Patch):
    ours, other = program(tmp_path / "ours"), program(tmp_path / "other")
    answer(monkeypatch, checkup.sysconfig, "get_path", str(ours))
    monkeypatch.setenv("PATH", f"{other}:{ours}")
    found = checkup.program()
    assert (found.mark, found.remedy) == ("warn", f"Put {ours} first on PATH")
    assert f"`compress` is {other}/compress, another program" in found.fact
    monkeypatch.setenv("PATH", f"{ours}:{other}")
    assert checkup.program().mark == "ok"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no `compress` is on PATH" in checkup.program().fact


def test_a_full_disk_fails(tmp_path: Path):
    found = checkup.folder(tmp_path / "not" / "yet", 10**18)
    assert found.mark == "fail"
    assert "may be needed" in found.fact
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: Patch):
    def refuse(folder: Path, free_bytes: int) -> None:
        raise EnvironmentProblem(str(folder), "cannot be written (Read-only file system)", "Choose a folder")

    monkeypatch.setattr(checkup, "require_writable", refuse)
    expected = f"{tmp_path}: cannot be written (Read-only file system)"
    assert (checkup.folder(tmp_path, 1).mark, checkup.folder(tmp_path, 1).fact) == ("fail", expected)


@pytest.mark.parametrize(
    ("date", "contaminated", "mark"),
    [("2001-01-01T00:00:00+00:00", False, "warn"), ("2999-01-01T00:00:00+00:00", False, "ok"),
     ("2999-01-01T00:00:00+00:00", True, "warn")],
)  # fmt: skip
def test_old_or_busy_ceilings_warn(date: str, contaminated: bool, mark: str, monkeypatch: Patch):
    found = Ceilings(
        name="m", source="measured on this machine", confidence="measured", threads=1, flop_per_s={}, levels=(),
        date=date, contaminated=contaminated,
    )  # fmt: skip
    answer(monkeypatch, checkup.cached, "load_ceilings", found)
    assert checkup.ceilings(1).mark == mark


def test_unmeasured_ceilings_name_the_command():
    assert checkup.ceilings(2).remedy == "compress doctor --measure --threads 2"


def test_nothing_broken_ends_with_0(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    assert "onnxruntime  onnxruntime 1.32.0, and no other" in capsys.readouterr().out


def test_torch_is_not_imported_which_would_take_seconds(tmp_path: Path):
    code = "import sys\nfrom compress.__main__ import main\nmain(['doctor'])\nassert 'torch' not in sys.modules"
    path = os.environ | {"PYTHONPATH": str(Path(compress.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_something_broken_ends_with_3_and_says_what_to_do(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]):
    answer(monkeypatch, facts, "versions", without("onnx"))
    assert main(["doctor", "--measure"]) == 3
    out, err = capsys.readouterr()
    assert "fail  packages     missing: onnx\n" in out
    assert "-> pip install onnx\n" in out
    assert "not measured" in err


def test_json_holds_the_same_findings(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["ceilings"]) == (True, None)
    assert [one["what"] for one in found["findings"]][:3] == ["packages", "torch", "onnxruntime"]
    assert all(one["remedy"] for one in found["findings"] if one["mark"] != "ok")


def test_measured_ceilings_are_printed_and_kept(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]):
    from test_ceilings_data import machine

    def measure(threads: int, listener: Callable[[str], None]) -> Ceilings:
        listener("something")
        return machine()

    monkeypatch.setattr("compress.measure.ceilings.measure_ceilings", measure)
    assert main(["doctor", "--measure"]) == 0
    out, err = capsys.readouterr()
    assert "measuring: something" in err
    text = " ".join(out.split())
    assert "fp32 conv 80.00 GFLOP/s +1% n=5 a kernel" in text
    assert "fp16 gemm 1.00 GFLOP/s +1% n=5 a kernel [slower than fp32]" in text
    assert "bf16 no kernel: no kernel" in text
    assert "int8 : fp32 = 2.00" in text
    assert "not measured" not in text
    assert cached.load_ceilings(1) == machine()
