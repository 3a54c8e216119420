"""Which page has which made parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpufleet.reference import catalogues, commands, settings
from gpufleet.reference.regions import renewed

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
# What makes the parts of a page, and the heading of a part that has no place in it yet; None: each must have one.
Maker = tuple[Callable[[], dict[str, str]], Callable[[str], str] | None]
PAGES: dict[str, Maker] = {
    "commands": (commands.parts, commands.heading),
    "settings": (settings.parts, None),
    "stacks": (catalogues.stacks, None),
    "models": (catalogues.models, None),
}


def made(name: str, text: str) -> str:
    """The page with its made parts as the code has them now. Raises ConfigError for a place that does not fit."""
    parts, fresh = PAGES[name]
    return renewed(text, parts(), fresh)
