"""A plot of the runs with nothing to do, as SVG: seconds by number of boxes, both on scales of powers of ten."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from benchmarks.table import medians

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 60, 110, 30, 40
FONT = 'font-family="sans-serif" font-size="12"'
COLORS = {"floor": "#888888", "gpufleet": "#0a7d36", "pyinfra": "#1f5fbf", "mitogen": "#c77700", "ansible": "#b3261e"}


def svg(results: Sequence[dict[str, Any]]) -> str:
    """The plot without added round trip; empty axes when nothing was measured."""
    found: dict[str, list[tuple[int, float]]] = {}
    for (scenario, boxes, delay, peer), seconds in sorted(medians(results).items()):
        if scenario == "nothing" and delay == 0:
            found.setdefault(peer, []).append((boxes, seconds))
    counts = sorted({boxes for points in found.values() for boxes, _ in points}) or [1]
    times = [seconds for points in found.values() for _, seconds in points] or [1]
    low, high = floor(log10(min(times))), max(ceil(log10(max(times))), floor(log10(min(times))) + 1)
    span = log10(max(counts) / min(counts)) or 1

    def x(boxes: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * log10(boxes / min(counts)) / span

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(seconds) - low) / (high - low)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18">Nothing to do: seconds by number of boxes</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        lines.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    for count in counts:
        lines.append(f'<text x="{x(count):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{count}</text>')
    for peer, points in found.items():
        color = COLORS.get(peer, "black")
        path = " ".join(f"{x(boxes):.1f},{y(seconds):.1f}" for boxes, seconds in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        lines += [
            f'<circle cx="{x(boxes):.1f}" cy="{y(seconds):.1f}" r="3" fill="{color}"/>' for boxes, seconds in points
        ]
        boxes, seconds = points[-1]
        said = f"{peer} {seconds:.2g} s"
        lines.append(f'<text x="{x(boxes) + 8:.1f}" y="{y(seconds) + 4:.1f}" fill="{color}">{said}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
