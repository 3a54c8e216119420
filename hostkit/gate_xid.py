"""New Xid events: what NVIDIA's driver wrote into the kernel's log of these cards since a moment before."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from hostkit import kernel_log
from hostkit.errors import Failure
from hostkit.guard import Untold
from hostkit.roots import Roots

# https://docs.nvidia.com/deploy/xid-errors/
MEANINGS = {
    13: "a kernel of the engine failed",
    31: "a kernel of the engine read or wrote where it may not",
    43: "a kernel of the engine was ended",
    45: "work on the card was ended",
    48: "a double-bit error of its memory",
    62: "the card's own processor stopped",
    63: "a row of its memory was replaced",
    64: "a row of its memory could not be replaced",
    74: "a NVLink failed",
    79: "the card has fallen off the bus",
    92: "many single-bit errors of its memory",
    94: "an error of its memory, contained",
    95: "an error of its memory, not contained",
    119: "the driver's GSP does not answer",
    120: "the driver's GSP failed",
}
BY_SOFTWARE = (13, 31, 43, 45)

Counts = Dict[Tuple[str, int], Tuple[int, str]]


def read(bus_ids: Sequence[str]) -> Counts:
    """(count, last line) of each (card, code) so far; empty without cards, and where there is no log to read."""
    if not bus_ids:
        return {}
    ours = {_short(bus_id) for bus_id in bus_ids}
    found = kernel_log.read(Roots(), Untold())["xid"]
    return {
        (item["bus_id"], item["code"]): (item["count"], item["last"])
        for item in found
        if _short(item["bus_id"]) in ours
    }


def check(before: Counts, bus_ids: Sequence[str]) -> None:
    """Raise Failure when there are more than before."""
    for (bus_id, code), (count, last) in sorted(read(bus_ids).items()):
        if count <= before.get((bus_id, code), (0, ""))[0]:
            continue
        meaning = MEANINGS.get(code, "see NVIDIA's list of Xid errors")
        remedy = (
            "look for the kernel in the service's journal; a release that served before did without it"
            if code in BY_SOFTWARE
            else "reboot the box; look at `journalctl -k -g Xid`, at cooling, power and the card's seat"
        )
        raise Failure("Xid {} of card {} since the start ({}): {}".format(code, bus_id, meaning, last), remedy)


def _short(bus_id: str) -> tuple[int, ...]:
    """NVML writes `00000000:01:00.0`, the kernel's log `0000:01:00`."""
    try:
        return tuple(int(part, 16) for part in bus_id.partition(".")[0].split(":"))
    except ValueError:
        return ()
