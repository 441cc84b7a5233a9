"""Labels beside points, none on top of another. Pure geometry: boxes are (left, bottom, right, top) in points."""

import math
from collections.abc import Sequence

Box = tuple[float, float, float, float]

DIRECTIONS = 16
RADII = (9.0, 16.0, 26.0, 40.0, 58.0, 80.0, 110.0, 150.0, 200.0, 260.0)


def place_labels(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], bounds: Box, obstacles: Sequence[Box]
) -> list[Box]:
    """A box of each size near its point, inside bounds, clear of each other and, where there is room, of obstacles."""
    placed: list[Box] = []
    for point, size in zip(points, sizes, strict=True):
        trials = [box for box in _around(point, size) if _inside(box, bounds)] or [_clamped(point, size, bounds)]
        free = [box for box in trials if not any(overlap(box, other) for other in placed)] or trials
        placed.append(min(free, key=lambda box: _cost(box, point, [*obstacles, *placed])))
    return placed


def overlap(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def nearest(box: Box, point: tuple[float, float]) -> tuple[float, float]:
    """The place of the box that is closest to the point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def _around(point: tuple[float, float], size: tuple[float, float]) -> list[Box]:
    boxes = []
    for radius in RADII:
        for step in range(DIRECTIONS):
            angle = 2 * math.pi * step / DIRECTIONS
            # The box grows away from the point: to the right of it on the right, to the left on the left.
            left = point[0] + radius * math.cos(angle) - size[0] * (1 - math.cos(angle)) / 2
            bottom = point[1] + radius * math.sin(angle) - size[1] * (1 - math.sin(angle)) / 2
            boxes.append((left, bottom, left + size[0], bottom + size[1]))
    return boxes


def _cost(box: Box, point: tuple[float, float], obstacles: Sequence[Box]) -> float:
    covered = sum(overlap(box, other) for other in obstacles)
    return covered * 10 + math.dist(nearest(box, point), point)


def _inside(box: Box, bounds: Box) -> bool:
    return box[0] >= bounds[0] and box[1] >= bounds[1] and box[2] <= bounds[2] and box[3] <= bounds[3]


def _clamped(point: tuple[float, float], size: tuple[float, float], bounds: Box) -> Box:
    left = max(bounds[0], min(point[0], bounds[2] - size[0]))
    bottom = max(bounds[1], min(point[1], bounds[3] - size[1]))
    return left, bottom, left + size[0], bottom + size[1]
