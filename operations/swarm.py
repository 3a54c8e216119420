"""Files from the controller's store into every box's, each sent once: the boxes give it on among themselves.

One swarm serves all boxes of a run. Each box asks gpufleet.spread for its next transfer, in the greenlet of its own
operation, and carries it out here; nothing waits for boxes that have not begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gevent.event import Event

from gpufleet.errors import BoxError
from gpufleet.pace import Pace
from gpufleet.spread import CONTROLLER, ORIGINS, OUTSIDE, File, Move, Spread, Stuck, Wait, next_move
from gpufleet.wheelhouse.items import Item
from gpufleet.wheelhouse.store import Store
from operations.member import Damaged, Member, Told, Ways
from operations.sent_files import blocks, is_right
from operations.shares import Box, Shares

SILENCE_SECONDS = 180  # a slow disk may take that long to write out what came last
LEAST = 100e3  # bytes per second: a peer that gives less is left,
CROWDED = 30  # and one that gives so many times less than this box has had; a busy network alone does not do that
LOOK_SECONDS = 10.0  # a box that has to read much of its store first holds up nobody for longer
BUSY_SECONDS = 2.0
BUSY_TIMES = 450  # a quarter of an hour


def bring(
    box: Box,
    items: Sequence[Item],
    store: Store,
    peers: bool = True,
    addresses: Mapping[str, str] | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    room: Mapping[str, Any] | None = None,
) -> None:
    """Have all items in the box's store. Raises BoxError.

    + store: the controller's; what it has is sent from there
    + peers: the box takes from other boxes and gives them; else everything comes over its own SSH connection
    + addresses: where a box itself fetches what the controller's store lacks, by sha256
    + more: what else the box is told of a file, by sha256: `place`, `pieces`, `at` (hostkit.stock)
    + room: `spare` bytes that must be free beside what lacks, and `what` that is of (hostkit.stock)
    """
    swarm.bring(box, items, store, Ways(peers, addresses or {}, more or {}, room or {}))


def offer(box: Box, items: Sequence[Item], more: Mapping[str, Mapping[str, Any]]) -> None:
    """A box that lacks nothing gives those that come what it has of these. Raises BoxError."""
    swarm.offer(box, items, more)


def forget(box: Box, items: Sequence[Item]) -> None:
    """Free the box's store of these files, unless some box of this run still waits for files. Raises BoxError."""
    if swarm.spread.wants:
        return
    for item in items:
        swarm.spread.lost(box.host.name, item.sha256)
    box.call("forget", {"files": [{"filename": item.filename, "sha256": item.sha256} for item in items]})


@dataclass
class Swarm:
    """The boxes of a run, and what of them is shared. All in one thread: only I/O gives way to another greenlet."""

    spread: Spread = field(default_factory=Spread)
    members: dict[str, Member] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)  # what the controller can send
    addresses: dict[str, str] = field(default_factory=dict)
    more: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # what else boxes are told of a file
    sent: int = 0  # bytes that left the controller
    shares: Shares = field(default_factory=Shares)
    _looking: set[str] = field(default_factory=set)  # boxes that are being asked what they have
    _changed: Event = field(default_factory=Event)

    def bring(self, box: Box, items: Sequence[Item], store: Store, ways: Ways) -> None:
        name = box.host.name
        member = self._join(box, items, store, ways)
        begun = time.monotonic()
        try:
            while (step := next_move(self.spread, name, time.monotonic())) is not None:
                if isinstance(step, Wait):
                    self._wait(2.0)
                elif isinstance(step, Stuck):
                    raise self._stuck(name, step.file)
                elif (
                    step.source in ORIGINS
                    and not step.at_once
                    and self._looking
                    and time.monotonic() - begun < LOOK_SECONDS
                ):
                    self._wait(1.0)
                else:
                    self._carry_out(member, step)
        except BaseException:
            self.spread.drop(name)
            raise
        else:
            self.spread.leave(name)
            if member.came:
                box.host.log(member.summary(time.monotonic() - begun))
        finally:
            self._notify()
            if not self.spread.wants:
                self.shares.end(self.spread.giving)

    def offer(self, box: Box, items: Sequence[Item], more: Mapping[str, Mapping[str, Any]]) -> None:
        name = box.host.name
        self.more.update(more)
        files = [File(item.sha256, item.filename, item.size or 0) for item in items]
        known = self.spread.holders
        if name in self.spread.wants or all(name in known.get(file.sha256, ()) for file in files):
            return
        found = box.call("stock", {"files": [self._wanted(file) for file in files]}, seconds=SILENCE_SECONDS)
        if name not in self.spread.wants:  # it began to take files itself meanwhile
            self.members.setdefault(name, Member(box))
            self.spread.offer(name, files, found["have"])
            self._notify()

    def _join(self, box: Box, items: Sequence[Item], store: Store, ways: Ways) -> Member:
        name = box.host.name
        self.more.update(ways.more)
        files, origins = [], {}
        for item in items:
            here = store.has(item)
            if here:
                self.paths[item.sha256] = store.path(item)
            if url := ways.addresses.get(item.sha256):
                self.addresses[item.sha256] = url
            size = item.size or (self.paths[item.sha256].stat().st_size if here else 0)
            files.append(File(item.sha256, item.filename, size))
            origins[item.sha256] = (*([CONTROLLER] if here else []), *([OUTSIDE] if url else []))
        # Read, and not only counted: a file that went bad on the disk would be in the way of every deploy to come.
        wanted = {"files": [self._wanted(file) for file in files], "check": True, **ways.room}
        reading = Told(box, "reading what is here of large files")
        self._looking.add(name)
        try:
            found = box.call("stock", wanted, seconds=SILENCE_SECONDS, progress=reading)
        finally:
            self._looking.discard(name)
            self._notify()
        member = self.members[name] = Member(box)
        for file in files:
            member.noted(file, found["parts"].get(file.sha256, 0), found["holes"].get(file.sha256))
        self.spread.join(name, files, found["have"], origins, sharing=ways.peers)
        missing = self.spread.wants[name]
        member.total = sum(self.spread.files[sha256].size for sha256 in missing)
        if missing:
            there = sum(member.parts.values())
            member.pace = Pace(member.total, there, time.monotonic())
            mib = f", {(member.total - there) / 2**20:.1f} MiB" if member.total else ""
            box.host.log(f"{_count(missing)} to come{mib}")
        return member

    def _carry_out(self, member: Member, move: Move) -> None:
        name, begun = member.name, time.monotonic()
        self.spread.begin(name, move, begun)
        try:
            if move.source == CONTROLLER:
                self._send(member, move.files)
            elif move.source == OUTSIDE:
                self._pull(member, move, [[self.addresses[sha256]] for sha256 in move.files])
            elif addresses := self._addresses(name, move.source):
                places = [_place(self.spread.files[sha256]) for sha256 in move.files]
                self._pull(member, move, [[f"{address}/{place}" for address in addresses] for place in places])
        finally:
            now = time.monotonic()
            if flight := self.spread.flights.get(name):
                member.arrived(move.source, flight.done, now - begun)
            self.spread.end(name, now)
            self._notify()

    def _send(self, member: Member, chosen: tuple[str, ...]) -> None:
        """From the controller, over the box's SSH connection."""
        name = member.name
        files = [self.spread.files[sha256] for sha256 in chosen]
        wanted = [{**self._wanted(file), "size": file.size, **member.begun(file)} for file in files]
        stretches = [(self.paths[file.sha256], at, length) for file in files for at, length in member.lacks(file)]
        payload = self._payload(member, stretches)
        answer = member.box.call("receive", {"files": wanted}, payload=payload, seconds=SILENCE_SECONDS)
        for sha256 in answer["got"]:
            self.spread.got(name, sha256, CONTROLLER)
            member.noted(self.spread.files[sha256], 0)
        for sha256, offset in answer["again"].items():
            member.noted(self.spread.files[sha256], offset, answer["holes"].get(sha256))
            member.once_more(self.spread.files[sha256], "another deploy writes it")
        for sha256 in answer["damaged"]:
            member.noted(self.spread.files[sha256], 0, answer["holes"].get(sha256))
            path = self.paths[sha256]
            if not is_right(path, sha256):
                raise Damaged(name, path)
            member.once_more(self.spread.files[sha256], "it arrived damaged")
        self._busy(member, answer["busy"])

    def _payload(self, member: Member, stretches: Iterable[tuple[Path, int, int]]) -> Iterator[bytes]:
        done = 0
        for block in blocks(stretches, member.name):
            yield block
            done += len(block)
            self.sent += len(block)
            self._progress(member, done)

    def _pull(self, member: Member, move: Move, urls: Sequence[Sequence[str]]) -> None:
        """From another box or from outside, by the box itself."""
        name, peer = member.name, move.source != OUTSIDE
        files = [
            {**self._wanted(self.spread.files[each]), "urls": list(at)}
            for each, at in zip(move.files, urls, strict=True)
        ]
        before = sum(member.parts.get(sha256, 0) for sha256 in move.files)
        spec = {"files": files, "peer": peer, "least": max(LEAST, member.best / CROWDED) if peer else None}
        answer = member.box.call(
            "pull",
            spec,
            seconds=SILENCE_SECONDS,
            progress=lambda event: self._progress(member, max(event.get("done", 0) - before, 0)),
        )
        for sha256 in answer["got"]:
            self.spread.got(name, sha256, move.source)
            member.noted(self.spread.files[sha256], 0)
        if flight := self.spread.flights.get(name):
            flight.done = max(flight.done, sum(self.spread.files[each].size for each in answer["got"]) - before)
        for sha256, failed in answer["failed"].items():
            self._not_from(member, move.source, sha256, failed)
        if answer["failed"]:
            self._look_again(member, list(answer["failed"]))
        self._busy(member, answer["busy"])

    def _not_from(self, member: Member, source: str, sha256: str, failed: Mapping[str, Any]) -> None:
        name, filename = member.name, self.spread.files[sha256].filename
        member.causes[sha256] = failed["cause"]
        if source == OUTSIDE:
            self.spread.failed_from(name, OUTSIDE, sha256)
            member.box.host.log(f"{filename} cannot be had from outside: {failed['cause']}")
            return
        member.box.host.log(f"{filename} does not come from {source} ({failed['cause']}): taking it from elsewhere")
        self.spread.failed_from(name, source, sha256 if failed["wrong"] else "")
        if failed["wrong"]:
            self._check(source, sha256)

    def _check(self, peer: str, sha256: str) -> None:
        """Have a box read what it gave: what is damaged is removed there, and comes again."""
        wanted = {"files": [self._wanted(self.spread.files[sha256])], "check": True}
        try:
            sound = sha256 in self.members[peer].box.call("stock", wanted, seconds=SILENCE_SECONDS)["have"]
        except BoxError:
            sound = False
        if not sound:
            self.spread.lost(peer, sha256)

    def _addresses(self, name: str, peer: str) -> list[str]:
        """Where a peer's store is served; none when it gives nothing, and is no peer any more."""
        try:
            addresses = self.shares.of(self.members[peer].box)
        except BoxError as error:
            self.members[name].box.host.log(f"{peer} gives nothing to other boxes: {error.cause}")
            addresses = []
        if not addresses:
            self.spread.no_peer(peer)
        return addresses

    def _busy(self, member: Member, busy: Sequence[str]) -> None:
        """Another deploy brings these: look again in a moment."""
        for sha256 in busy:
            member.once_more(self.spread.files[sha256], "another deploy brings it", BUSY_TIMES)
            self.spread.later(member.name, sha256)
        if busy:
            self._wait(BUSY_SECONDS)
            self._look_again(member, busy)

    def _look_again(self, member: Member, files: Sequence[str]) -> None:
        wanted = {"files": [self._wanted(self.spread.files[sha256]) for sha256 in files]}
        found = member.box.call("stock", wanted, seconds=SILENCE_SECONDS)
        for sha256 in files:
            member.noted(self.spread.files[sha256], found["parts"].get(sha256, 0), found["holes"].get(sha256))
        for sha256 in found["have"]:
            self.spread.got(member.name, sha256, CONTROLLER)

    def _stuck(self, name: str, sha256: str) -> BoxError:
        filename = self.spread.files[sha256].filename
        causes = [member.causes[sha256] for member in self.members.values() if sha256 in member.causes]
        cause = self.members[name].causes.get(sha256) or next(iter(causes), "neither the controller nor a box has it")
        return BoxError(name, f"{filename} cannot be had: {cause}", "see to that, then deploy again")

    def _progress(self, member: Member, done: int) -> None:
        """`done`: bytes that this transfer has brought."""
        name, now = member.name, time.monotonic()
        if flight := self.spread.flights.get(name):
            flight.done = max(flight.done, done)
        missing = sum(self.spread.files[sha256].size for sha256 in self.spread.wants.get(name, ()))
        if member.pace and (line := member.pace.line(member.total - missing + done, now)):
            member.box.host.log(line)

    def _wanted(self, file: File) -> dict[str, Any]:
        more = self.more.get(file.sha256, {})
        return {"filename": file.filename, "sha256": file.sha256, "size": file.size or None, **more}

    def _wait(self, seconds: float) -> None:
        self._changed.wait(seconds)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = Event()


swarm = Swarm()


def _place(file: File) -> str:
    return f"{file.sha256}/{quote(file.filename)}"


def _count(files: Sequence[Any] | set[str]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"
