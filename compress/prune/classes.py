"""Channels that go together, or not at all."""

from collections.abc import Sequence

Units = tuple[tuple[int, ...], ...]


class Classes:
    """Channels that go together: a union-find over the channels of a group's first layer."""

    def __init__(self, channels: int) -> None:
        self.parents = list(range(channels))
        self.whole: set[int] = set()

    def join(self, labels: Sequence[int], roots: Sequence[int], size: int) -> None:
        """Join roots of one label. A class with fewer than `size` members reaches outside: its roots stay."""
        members: dict[int, list[int]] = {}
        for label, root in zip(labels, roots, strict=True):
            members.setdefault(label, []).append(root)
        for together in members.values():
            if len(together) < size:
                self.whole.update(together)
            for other in together[1:]:
                self.parents[self._find(other)] = self._find(together[0])

    def units(self) -> Units:
        found: dict[int, list[int]] = {}
        for root in range(len(self.parents)):
            found.setdefault(self._find(root), []).append(root)
        return tuple(tuple(unit) for unit in found.values() if not self.whole.intersection(unit))

    def _find(self, root: int) -> int:
        while self.parents[root] != root:
            root = self.parents[root]
        return root
