"""Runs of a small real net, in folders of their own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from compress.report.read import read_report
from compress.report.schema import Report

RECIPE = """\
schema: 1
name: digits
model: {ref: "compress.zoo:digits_cnn"}
data: {ref: "compress.zoo:digits", calibration_samples: 128}
target: {batch_sizes: [1, 4]}
gates:
  - {metric: top1, max_drop: 0.05}
  - {metric: speedup, min: 0.01}
  - {metric: size_ratio, max: 0.6}
stages:
  - ptq
"""


@dataclass(frozen=True)
class Run:
    """A folder that `compress run` wrote into, and the report it made."""

    output: Path
    folder: Path
    report: Report

    def artefact(self, name: str) -> Path:
        candidate = next(candidate for candidate in self.report.candidates if candidate.name == name)
        return self.folder / str(candidate.artefact)


def write_recipe(folder: Path, text: str = RECIPE, name: str = "digits.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def start(arguments: list[str], output: Path) -> "subprocess.Popen[str]":
    """`compress run` in a process of its own, in its own session so that signals go where they are sent."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "compress", "run", *arguments, "--output", str(output)]
    return subprocess.Popen(
        command, cwd=output, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kept(output: Path) -> set[str]:
    """Names of what the store holds, but for remedies: which one the verdict advises hangs on the machine's ceilings,
    and those are measured again when it was busy the first time.
    """
    names = {path.name for path in (output / ".compress/store").iterdir()}
    return {name for name in names if "remedy-" not in name}


def newest_report(output: Path, name: str = "digits") -> Run:
    folder = max((output / "runs" / name).iterdir())
    return Run(output=output, folder=folder, report=read_report(folder))
