"""A fleet of boxes with the stand-in engine, as its owner and its clients see it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import state
from tests.command import GPUFLEET, run
from tests.lab.clients import Clients
from tests.lab.support import Done, SmallLab, deploy

UNIT = "gpufleet-standin.service"
HOME = "/opt/gpufleet/instances/standin"
MODEL = "standin"
BOOKS = "var/lib/gpufleet"


@dataclass(frozen=True)
class Fleet:
    """Boxes of a lab and their owner's folder."""

    lab: SmallLab
    folder: Path
    boxes: Sequence[str]

    def want(self, **settings: Any) -> None:
        """What group_data/all.py says from now on."""
        page = self.folder / "group_data" / "all.py"
        page.parent.mkdir(exist_ok=True)
        page.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))

    def deploy(self, *options: str) -> Done:
        return deploy(self.folder, ["-y", *options])

    def address(self, box: str) -> str:
        return f"{state.load(self.lab.where).box(box).address}:8000"

    def clients(self, boxes: Sequence[str] = ()) -> Clients:
        """Of all boxes, or of these."""
        return Clients({box: self.address(box) for box in boxes or self.boxes}, MODEL)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`gpufleet VERB inventory/home.py …`"""
        verb, *rest = words
        return run(self.folder, verb, "inventory/home.py", *rest, program=GPUFLEET)

    def pids(self) -> dict[str, str]:
        """The engine's process on each box."""
        return {box: self.lab.sh(box, f"systemctl show -p MainPID --value {UNIT}") for box in self.boxes}

    def releases(self) -> dict[str, str]:
        """The current release of each box."""
        return {box: (self.root(box) / HOME[1:] / "current").readlink().name for box in self.boxes}

    def root(self, box: str) -> Path:
        """The box's root directory, as this machine sees it."""
        return self.lab.where.boxes / box / "root"

    def known(self, box: str) -> dict[str, Any]:
        """What the box remembers of the instance."""
        return dict(json.loads((self.root(box) / BOOKS / "state.json").read_text())["instances"][MODEL])

    def journal(self, box: str) -> list[dict[str, Any]]:
        """The box's journal."""
        lines = (self.root(box) / BOOKS / "journal.jsonl").read_text().splitlines()
        return [dict(json.loads(line)) for line in lines]


def seconds(at: str) -> float:
    """A time of the journal, which has no fractions, as seconds since the epoch."""
    return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
