"""A fleet of boxes with the stand-in engine, as its owner and its clients see it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab import state
from tests.command import GPUFLEET, run
from tests.lab.clients import Clients, most_at_once
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


def assert_in_waves(fleet: Fleet, waves: list[list[str]], limit: int, **settings: Any) -> None:
    """A deploy of these settings switches the boxes wave by wave, as clients see it."""
    with fleet.clients() as clients:
        fleet.want(**settings)
        before = fleet.pids()
        done = fleet.deploy()
    assert done.code == 0, done.output
    down = clients.outages()
    assert {box: len(found) for box, found in down.items()} == dict.fromkeys(fleet.boxes, 1)
    for earlier, later in pairwise(waves):
        assert max(down[box][0].last for box in earlier) < min(down[box][0].first for box in later), (earlier, later)
    assert 1 <= most_at_once(found[0] for found in down.values()) <= limit
    for box, (outage,) in down.items():
        began, ended = switched(fleet, box)
        assert began <= outage.first and outage.last <= ended + 1, f"{box} was down, and not for its restart"
        assert fleet.lab.sh(box, f"systemctl show -P NRestarts {UNIT}") == "0"
    assert not set(before.items()) & set(fleet.pids().items())
    assert len(set(fleet.releases().values())) == 1


def switched(fleet: Fleet, box: str) -> tuple[float, float]:
    """When the last activation of a box stopped its service, and when it was through its gate."""
    journal = fleet.journal(box)
    stopped = [event["at"] for event in journal if event.get("step") == "stopping"]
    passed = [event["at"] for event in journal if event["event"] == "activated"]
    return seconds(stopped[-1]), seconds(passed[-1])


def report(fleet: Fleet) -> dict[str, Any]:
    """The report of the last run."""
    *_, newest = sorted((fleet.folder / "inventory" / "reports").rglob("*.json"))
    return dict(json.loads(newest.read_text()))
