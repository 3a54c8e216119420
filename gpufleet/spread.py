"""Which file a box gets next and from whom, so that each leaves the controller once and every link is used.

Tiny files excepted, which the controller sends to each box itself: to share them costs more than they do. All others go
whole from box to box: the first copy of each comes from an origin (the controller, or an address outside), all
others from boxes that have it. Each box takes one transfer at a time, and asks here for the next; the functions decide
from what is known now and touch nothing. A box waits only while another has a transfer under way, so nobody waits for
ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTROLLER, OUTSIDE = "the controller", "outside"  # no names of boxes: they have no blanks, and `outside` is no address
ORIGINS = (CONTROLLER, OUTSIDE)
# A source serves two at a time: while one hashes and syncs what it got, the other keeps the link busy. With more of
# them each copy would only be whole later, and so be given on later.
AT_ONCE = 2
# A transfer costs a command on the box, some 0.2 s; a gigabit brings 20 MB in that time.
SMALL, BUNDLE, BUNDLE_FILES = 8 << 20, 32 << 20, 100
TINY = 256 << 10  # bytes, of all small files that a box lacks
# A first copy that is under way to a box on a bad link holds up nobody else.
SLOW_SECONDS, SLOW = 15.0, 1 / 8


@dataclass(frozen=True)
class File:
    sha256: str
    filename: str
    size: int  # bytes; 0: not known


@dataclass(frozen=True)
class Move:
    """Get these files from this source now."""

    source: str
    files: tuple[str, ...]  # sha256
    at_once: bool = field(default=False, compare=False)  # it is tiny: it waits for nothing, and counts for nothing


@dataclass(frozen=True)
class Wait:
    """Nothing to do until another box's transfer ends."""


@dataclass(frozen=True)
class Stuck:
    """Nobody can give this file any more."""

    file: str


@dataclass
class Flight:
    """A transfer under way."""

    source: str
    files: tuple[str, ...]
    since: float  # seconds of a monotonic clock
    done: int = 0  # bytes
    at_once: bool = False  # see Move


@dataclass
class Spread:
    """What is known of a run: the files, who has them, who wants them, what is under way, what went wrong."""

    files: dict[str, File] = field(default_factory=dict)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of a file, the best first
    wants: dict[str, set[str]] = field(default_factory=dict)  # of the boxes that are at it
    holders: dict[str, set[str]] = field(default_factory=dict)  # of a file
    taking: set[str] = field(default_factory=set)  # boxes that take from others
    giving: set[str] = field(default_factory=set)  # boxes that others take from
    flights: dict[str, Flight] = field(default_factory=dict)  # by the box that gets
    trouble: set[tuple[str, str, str]] = field(default_factory=set)  # box, source, file; file "": with all of them
    delayed: set[tuple[str, str]] = field(default_factory=set)  # box, file; another deploy brings it there
    served: set[str] = field(default_factory=set)  # boxes that got something from another
    best: float = 0.0  # bytes per second, the fastest transfer from an origin

    def join(
        self,
        box: str,
        files: Iterable[File],
        have: Iterable[str],
        origins: Mapping[str, tuple[str, ...]],
        sharing: bool = True,
    ) -> None:
        """A box comes in, with what it has already and where each file can be had from first."""
        wanted = {file.sha256: file for file in files}
        self.files.update(wanted)
        for sha256 in wanted:
            known = self.origins.get(sha256, ())
            self.origins[sha256] = (*known, *(each for each in origins.get(sha256, ()) if each not in known))
        if sharing:
            self.taking.add(box)
            self.giving.add(box)
        there = set(have) & set(wanted)
        self.wants.setdefault(box, set()).update(set(wanted) - there)
        for sha256 in there:
            self.holders.setdefault(sha256, set()).add(box)

    def offer(self, box: str, files: Iterable[File], have: Iterable[str]) -> None:
        """A box that wants nothing gives what it has of these."""
        self.files.update({file.sha256: file for file in files if file.sha256 not in self.files})
        self.giving.add(box)
        for sha256 in have:
            self.origins.setdefault(sha256, ())
            self.holders.setdefault(sha256, set()).add(box)

    def begin(self, box: str, move: Move, now: float) -> None:
        self.flights[box] = Flight(move.source, move.files, now, at_once=move.at_once)

    def end(self, box: str, now: float) -> None:
        flight = self.flights.pop(box, None)
        if flight and flight.source in ORIGINS and flight.done >= SMALL:
            self.best = max(self.best, flight.done / max(now - flight.since, 1e-3))

    def got(self, box: str, sha256: str, source: str) -> None:
        self.wants[box].discard(sha256)
        self.holders.setdefault(sha256, set()).add(box)
        if source not in ORIGINS:
            self.served.add(box)

    def failed_from(self, box: str, source: str, sha256: str = "") -> None:
        """This source gave the box nothing; without a file, it is not to be asked by it again."""
        self.trouble.add((box, source, sha256))

    def later(self, box: str, sha256: str) -> None:
        """Another deploy is bringing this file to the box."""
        self.delayed.add((box, sha256))

    def lost(self, box: str, sha256: str) -> None:
        """What the box had was damaged."""
        self.holders.get(sha256, set()).discard(box)
        if box in self.wants:
            self.wants[box].add(sha256)

    def leave(self, box: str) -> None:
        """The box has all it wants; it goes on giving."""
        self.wants.pop(box, None)

    def drop(self, box: str) -> None:
        """The box failed: it neither takes nor gives any more."""
        self.wants.pop(box, None)
        self.flights.pop(box, None)
        self.no_peer(box)

    def no_peer(self, box: str) -> None:
        """The box gives nothing; what it wants comes from the others all the same."""
        self.giving.discard(box)


def next_move(spread: Spread, box: str, now: float) -> Move | Wait | Stuck | None:
    """What the box does next; None when it has everything. The rarest file comes first, of these the largest."""
    wanted = sorted(
        spread.wants[box],
        key=lambda each: (len(spread.holders.get(each, ())), -spread.files[each].size, each),
    )
    if not wanted:
        return None
    if tiny := _tiny(spread, box, wanted):
        return Move(CONTROLLER, tiny, at_once=True)
    view = _View(spread, box, now)
    for sha256 in wanted:
        if source := view.source(sha256):
            return Move(source, view.bundle(source, [sha256, *(each for each in wanted if each != sha256)]))
    hopeless = [sha256 for sha256 in wanted if not view.hope(sha256)]
    return Stuck(hopeless[0]) if hopeless else Wait()


def _tiny(spread: Spread, box: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Files that the controller has and sends at once, whoever else could: all small ones, where they are so few."""
    small = [sha256 for sha256 in wanted if 0 < spread.files[sha256].size < SMALL]
    chosen = [each for each in small if CONTROLLER in spread.origins[each] and (box, each) not in spread.delayed]
    few = len(chosen) <= BUNDLE_FILES and sum(spread.files[sha256].size for sha256 in chosen) <= TINY
    return tuple(chosen) if few else ()


class _View:
    """A run at one moment, as one of its boxes sees it."""

    def __init__(self, spread: Spread, box: str, now: float) -> None:
        self.spread, self.box = spread, box
        # A slow transfer from an origin leaves room for others, and nobody waits for what it brings.
        counting = [(other, each) for other, each in spread.flights.items() if not each.at_once]
        flights = [(other, each) for other, each in counting if not _slow(each, spread.best, now)]
        self.loads = Counter(flight.source for _, flight in flights)
        self.coming: dict[str, set[str]] = {}  # first copies under way: by file, the boxes that will have it
        for other, flight in flights:
            if flight.source in ORIGINS and other in spread.giving:
                for sha256 in flight.files:
                    self.coming.setdefault(sha256, set()).add(other)
        self.alone, self.avoided = _who_fails(spread)

    def source(self, sha256: str) -> str | None:
        """Whom to ask for this file now; None when that is nobody yet."""
        if peers := self.peers(self.box, sha256):
            free = [peer for peer in peers if self.loads[peer] < AT_ONCE]
            return min(free, key=lambda peer: (self.loads[peer], peer)) if free else None
        if any(self.may(self.box, other, sha256) for other in self.coming.get(sha256, ())):
            return None
        for origin in self.spread.origins[sha256]:
            if self.may(self.box, origin, sha256) and self.loads[origin] < AT_ONCE:
                return origin
        return None

    def bundle(self, source: str, wanted: list[str]) -> tuple[str, ...]:
        """The first of these files, and when it is small others like it that the same source can give."""
        sizes = self.spread.files
        chosen, total = wanted[:1], sizes[wanted[0]].size
        if total >= SMALL:
            return tuple(chosen)
        for sha256 in wanted[1:]:
            size = sizes[sha256].size
            if size >= SMALL or total + size > BUNDLE or len(chosen) == BUNDLE_FILES:
                continue
            if source in self.peers(self.box, sha256) or self.source(sha256) == source:
                chosen.append(sha256)
                total += size
        return tuple(chosen)

    def hope(self, sha256: str) -> bool:
        """Whether the file can come to this box at all: by a source of its own, or by a box that has one."""
        return self.can_get(self.box, sha256) or any(
            sha256 in wanted and self.may(self.box, other, sha256) and self.can_get(other, sha256)
            for other, wanted in self.spread.wants.items()
            if other != self.box
        )

    def can_get(self, box: str, sha256: str) -> bool:
        origins = self.spread.origins[sha256]
        return bool(self.peers(box, sha256)) or any(self.may(box, each, sha256) for each in origins)

    def peers(self, box: str, sha256: str) -> list[str]:
        """The boxes that have the file and can be asked."""
        holders = self.spread.holders.get(sha256, ())
        return [peer for peer in holders if peer != box and self.may(box, peer, sha256)]

    def may(self, box: str, source: str, sha256: str) -> bool:
        """Whether this box may ask this source: not where it failed before, nor where others did."""
        trouble = self.spread.trouble
        if (box, source, "") in trouble or (box, source, sha256) in trouble:
            return False
        if source in ORIGINS:
            return True
        if box in self.alone or source in self.avoided:
            return False
        return box in self.spread.taking and source in self.spread.giving


def _who_fails(spread: Spread) -> tuple[set[str], set[str]]:
    """Boxes that reach no other, and peers that nobody reaches.

    A box that got nothing from any peer asks none after two, and what it says of them does not count. A peer that two
    others could not get anything from is asked by nobody.
    """
    pairs = {(box, source) for box, source, file in spread.trouble if not file and source not in ORIGINS}
    tried = Counter(box for box, _ in pairs)
    alone = {box for box, count in tried.items() if count >= 2 and box not in spread.served}
    blamed = Counter(source for box, source in pairs if box not in alone)
    return alone, {source for source, count in blamed.items() if count >= 2}


def _slow(flight: Flight, best: float, now: float) -> bool:
    seconds = now - flight.since
    return flight.source in ORIGINS and seconds > SLOW_SECONDS and flight.done / seconds < best * SLOW
