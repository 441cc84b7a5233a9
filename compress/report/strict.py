"""For writers of the report: readers keep keys they do not know, writers of this version must not make any."""

from compress.report.schema import Part


def unknown_keys(part: Part, place: str = "") -> list[str]:
    """Dotted paths of keys that this version does not define; a writer of version 1 must leave this empty."""
    found = [f"{place}{key}" for key in part.model_extra or {}]
    for name in type(part).model_fields:
        found += _unknown_inside(getattr(part, name), f"{place}{name}")
    return found


def _unknown_inside(value: object, place: str) -> list[str]:
    if isinstance(value, Part):
        return unknown_keys(value, place + ".")
    if isinstance(value, dict):
        return [key for name, inner in value.items() for key in _unknown_inside(inner, f"{place}.{name}")]
    if isinstance(value, list):
        return [key for number, inner in enumerate(value) for key in _unknown_inside(inner, f"{place}.{number}")]
    return []
