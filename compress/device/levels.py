"""Sizes of the data caches that one core sees, as Linux tells them, and of the memory behind them."""

from pathlib import Path

CACHE_ROOT = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# What is assumed where the system does not tell (containers without sysfs, other systems).
USUAL_BYTES = {"l1": 32 << 10, "l2": 1 << 20, "l3": 32 << 20}


def cache_bytes(root: Path = CACHE_ROOT) -> dict[str, int]:
    """Bytes of each data cache by level, nearest first: {"l1": 32768, ...}. The last is shared with other cores."""
    found = {}
    for folder in root.glob("index*"):
        level, kind, size = (_line(folder / name) for name in ("level", "type", "size"))
        if kind in ("Data", "Unified") and level and size:
            found[f"l{level}"] = _bytes(size)
    return dict(sorted(found.items())) or dict(USUAL_BYTES)


def llc_bytes(root: Path = CACHE_ROOT) -> int:
    """Bytes of the last-level cache, the whole of it: a guest of a shared host is left with less."""
    return list(cache_bytes(root).values())[-1]


def _bytes(text: str) -> int:
    """32K -> 32768."""
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
