"""The results as a table: medians, and how many times as long as gpufleet each peer takes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

TITLES = {
    "first": "first run",
    "nothing": "nothing to do",
    "file": "one file changed",
    "one": "one box changed",
}


def medians(results: Sequence[dict[str, Any]], key: str = "seconds") -> dict[tuple[str, int, int, str], float]:
    """By scenario, boxes, delay and peer."""
    found: dict[tuple[str, int, int, str], list[float]] = {}
    for item in results:
        if key in item:
            found.setdefault((item["scenario"], item["boxes"], item["delay"], item["peer"]), []).append(item[key])
    return {place: median(values) for place, values in found.items()}


def text(results: Sequence[dict[str, Any]]) -> str:
    """Two tables in Markdown: the seconds; and what a run with nothing to do takes of the controller, and sends."""
    seconds, cpu = medians(results), medians(results, "cpu")
    peers = list(dict.fromkeys(item["peer"] for item in results))
    lines = [_row("", "boxes", "added round trip", *peers), _row(*["---"] * (3 + len(peers)))]
    for scenario, count, delay in dict.fromkeys(place[:3] for place in seconds):
        ours = seconds.get((scenario, count, delay, "gpufleet"))
        cells = [_cell(seconds.get((scenario, count, delay, peer)), ours) for peer in peers]
        lines.append(_row(TITLES[scenario], str(count), f"{delay} ms", *cells))
    counted = [item for item in results if item["scenario"] == "counted"]
    if counted:
        lines += ["", _row(*COUNTED), _row(*["---"] * len(COUNTED))]
    for item in counted:
        used = cpu.get(("nothing", item["boxes"], item["delay"], item["peer"]))
        lines.append(
            _row(
                item["peer"], str(item["boxes"]), f"{item['delay']} ms", "" if used is None else f"{used:.2f} s",
                f"{item['rss_mib']:.0f} MiB", f"{item['to_box'] / 1024:.1f} KiB", f"{item['from_box'] / 1024:.1f} KiB",
                f"{item['round_trips']:.1f}",
            )
        )  # fmt: skip
    return "\n".join(lines)


COUNTED = (
    "nothing to do", "boxes", "added round trip", "processor time", "memory", "to a box", "from a box", "round trips",
)  # fmt: skip


def _cell(value: float | None, ours: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f} s" + (f" ({value / ours:.2g} ×)" if ours and value != ours else "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
