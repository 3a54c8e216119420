"""One box of the swarm: what came to it from where, how fast, and what did not come as it should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufleet.errors import BoxError
from gpufleet.pace import Pace, duration
from gpufleet.spread import CONTROLLER, OUTSIDE, File
from operations.shares import Box

TRIES = 3
AGAIN = "deploy again; what came is kept"
PEERS = "other boxes"
MEASURED = 1 << 20  # bytes: less says nothing of a link
TOLD = 2**20 // 20  # bytes: less is 0.0 MiB, and told only where nothing else is


@dataclass(frozen=True)
class Ways:
    """How files come to a box; see operations.swarm.bring."""

    peers: bool = True
    addresses: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    room: Mapping[str, Any] = field(default_factory=dict)


class Damaged(BoxError):
    """A file in the controller's store is not what its name says. + sha256: which"""

    def __init__(self, name: str, path: Path, gone: bool = False) -> None:
        what, remedy = ("gone", AGAIN) if gone else ("damaged", "delete that file, then deploy again")
        super().__init__(name, f"{path} on this controller is {what}", remedy)
        self.sha256 = path.parent.name


@dataclass
class Told:
    """Says something once when it is called, however often that is."""

    box: Box
    what: str
    said: bool = False

    def __call__(self, event: Mapping[str, Any]) -> None:
        if not self.said:
            self.box.host.log(self.what)
        self.said = True


@dataclass
class Member:
    box: Box
    parts: dict[str, int] = field(default_factory=dict)  # bytes on the box of files that broke off
    holes: dict[str, list[list[int]]] = field(default_factory=dict)  # [offset, length] that lack of those in the middle
    came: dict[str, int] = field(default_factory=dict)  # bytes by source
    tries: dict[str, int] = field(default_factory=dict)  # of files that did not come as they should
    causes: dict[str, str] = field(default_factory=dict)  # why a file did not come
    best: float = 0.0  # bytes per second
    pace: Pace | None = None
    total: int = 0  # bytes that it wanted at first

    @property
    def name(self) -> str:
        return self.box.host.name

    def noted(self, file: File, part: int, holes: list[list[int]] | None = None) -> None:
        """What there is of a file on the box: the first `part` bytes, or all but its holes."""
        self.parts.pop(file.sha256, None)
        self.holes.pop(file.sha256, None)
        if holes is not None:
            self.holes[file.sha256] = holes
            part = file.size - sum(length for _, length in holes)
        if part:
            self.parts[file.sha256] = part

    def lacks(self, file: File) -> list[list[int]]:
        """[offset, length] of what the box lacks of a file."""
        here = self.parts.get(file.sha256, 0)
        return self.holes.get(file.sha256, [[here, file.size - here]])

    def begun(self, file: File) -> dict[str, Any]:
        """The same as the verb `receive` is told it."""
        if file.sha256 in self.holes:
            return {"offset": 0, "holes": self.holes[file.sha256]}
        return {"offset": self.parts.get(file.sha256, 0)}

    def arrived(self, source: str, size: int, seconds: float) -> None:
        self.came[source] = self.came.get(source, 0) + size
        if size >= MEASURED:
            self.best = max(self.best, size / max(seconds, 1e-3))

    def once_more(self, file: File, why: str, times: int = TRIES) -> None:
        """Count another try of a file. Raises BoxError when there were `times`."""
        self.tries[file.sha256] = self.tries.get(file.sha256, 0) + 1
        if self.tries[file.sha256] > times:
            raise BoxError(self.name, f"{file.filename} does not come: {why}", AGAIN)

    def summary(self, seconds: float) -> str:
        came = dict.fromkeys((PEERS, CONTROLLER, OUTSIDE), 0)
        for source, size in self.came.items():
            came[source if source in came else PEERS] += size
        least = TOLD if max(came.values()) >= TOLD else 1
        told = [source for source, size in came.items() if size >= least]
        said = ", ".join(f"{came[source] / 2**20:.1f} MiB from {source}" for source in told)
        return f"all files are here after {duration(seconds)}" + (f": {said}" if said else "")
