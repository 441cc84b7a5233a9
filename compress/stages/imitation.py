"""Whether the file that is served gives what the module gave that was trained."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compress.data import Array
from compress.device.runtime import open_session
from compress.measure.stats import sqnr_db

# Roundings that fall the other way in another order of sums cost 35 to 45 dB; a tensor rounded elsewhere costs more.
IMITATED_DB = 25.0


@dataclass(frozen=True, kw_only=True)
class Compared:
    """agreement: share of samples with the same largest output, None where outputs are no classes."""

    sqnr_db: float | None
    agreement: float | None
    agrees: bool
    note: str


def compare_with_imitation(path: Path, feeds: dict[str, Array], imitated: Array) -> Compared:
    """Run the file on the samples that the trained module was run on. imitated: its first output (n, ...)."""
    found = np.asarray(open_session(path).run(None, feeds)[0], dtype=np.float64)
    wanted = imitated.astype(np.float64)
    closeness = sqnr_db(wanted.ravel(), found.ravel())
    agreement = float((found.argmax(axis=1) == wanted.argmax(axis=1)).mean()) if found.ndim == 2 else None
    agrees = closeness is None or closeness >= IMITATED_DB
    figures = "identical" if closeness is None else f"{closeness:.1f} dB"
    if agreement is not None:
        figures += f", {agreement:.4f} of {len(found)} samples alike"
    head = (
        "serves what was trained"
        if agrees
        else "does NOT serve what was trained: part of its rounding was not imitated"
    )
    return Compared(sqnr_db=closeness, agreement=agreement, agrees=agrees, note=f"{head} ({figures})")
