"""Where the GPUs of a picture go: on an ellipse, in an order in which the links between them cross little."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Point = tuple[float, float]
# Beyond this many links the crossings are not counted: there is no order without many, and counting takes long.
MOST_COUNTED = 30


def around(order: Sequence[int], width: float, height: float) -> dict[int, Point]:
    """The centres of boxes of this size around (0, 0): two side by side, more clockwise on an ellipse from top left."""
    count = len(order)
    if count == 1:
        return {order[0]: (0, 0)}
    if count == 2:
        return {order[0]: (-width, 0), order[1]: (width, 0)}
    turn = 2 * math.pi / count
    first = -math.pi / 2 - (turn / 2 if count % 2 == 0 else 0)
    wide, high = width, height * 1.4
    while True:
        points = [(wide * math.cos(first + i * turn), high * math.sin(first + i * turn)) for i in range(count)]
        gaps = ((abs(a[0] - b[0]), abs(a[1] - b[1])) for a, b in zip(points, points[1:] + points[:1], strict=True))
        if all(x > width * 1.22 or y > height * 1.4 for x, y in gaps):
            return dict(zip(order, points, strict=True))
        wide, high = wide * 1.05, high * 1.05


def ordered(gpus: Sequence[int], lines: Mapping[tuple[int, int], int], starts: Sequence[Sequence[int]]) -> list[int]:
    """The GPUs in an order around a circle in which few lines cross, then heavy lines are short.

    + lines: weight of each line; those of weight 1 or less are drawn thin and may cross
    + starts: orders to begin with; of equally good ends the one with the fewest GPUs out of place wins
    """
    heavy = [pair for pair, weight in lines.items() if weight > 1]
    counted = heavy if len(heavy) <= MOST_COUNTED else []

    def cost(order: Sequence[int]) -> tuple[int, int]:
        place = {gpu: at for at, gpu in enumerate(order)}
        spans = sorted((min(place[a], place[b]), max(place[a], place[b])) for a, b in counted)
        crossings = sum(a < c < b < d for (a, b), (c, d) in combinations(spans, 2))
        return crossings, sum(weight * _apart(place, pair) ** 2 for pair, weight in lines.items())

    if len(gpus) < 3:
        return sorted(gpus)
    ends = [_turned(_swapped(list(start), cost)) for start in starts]
    return min(ends, key=lambda order: (cost(order), sum(abs(order.index(gpu) - at) for at, gpu in enumerate(gpus))))


def distance(point: Point, start: Point, end: Point) -> float:
    """How far a point is from the line between two others."""
    (x, y), (ax, ay), (bx, by) = point, start, end
    length = (bx - ax) ** 2 + (by - ay) ** 2
    along = max(0.0, min(1.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length)) if length else 0.0
    return math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


def _apart(place: Mapping[int, int], pair: tuple[int, int]) -> int:
    straight = abs(place[pair[0]] - place[pair[1]])
    return min(straight, len(place) - straight)


def _swapped(order: list[int], cost: Callable[[Sequence[int]], tuple[int, int]]) -> list[int]:
    """Two GPUs change places as long as that makes it better."""
    least = cost(order)
    improved = True
    while improved:
        improved = False
        for i, j in combinations(range(len(order)), 2):
            order[i], order[j] = order[j], order[i]
            now = cost(order)
            if now < least:
                least, improved = now, True
            else:
                order[i], order[j] = order[j], order[i]
    return order


def _turned(order: list[int]) -> list[int]:
    """The same circle from the lowest index on, in the direction of its lower neighbour; three as they are read."""
    start = order.index(min(order))
    turned = order[start:] + order[:start]
    return turned if (turned[1] < turned[-1]) != (len(turned) == 3) else [turned[0], *reversed(turned[1:])]
