"""What lies between two cards: counted NVLinks, else what they share on the bus, in the words of `nvidia-smi topo`."""

from __future__ import annotations

import ctypes
from collections import Counter
from itertools import combinations
from typing import Any

MAX_LINKS = 36
# nvmlIntNvLinkDeviceType_t; the others are bridges of other makers
REMOTES = {0: "gpu", 2: "switch"}
# NVML_ERROR_INVALID_ARGUMENT: what a link index beyond the card's last answers
BEYOND_THE_LAST = 2
NO_SUCH_PEER = "FFFFFFFF:FF:FF.0"
# nvmlGpuTopologyLevel_t; 0 is two chips on one board
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# nvmlGpuP2PStatus_t; 4 is switched off in the driver's settings
P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "NS", 5: "NS"}
# nvmlGpuP2PCapsIndex_t. Numbers made here: pynvml 13.610 and later define NVML_P2P_CAPS_INDEX_READ as the tuple (0,)
P2P_READ, P2P_WRITE = 0, 1
# NVML_FI_DEV_NVLINK_GET_SPEED, by link; older drivers know a field for each of the first twelve links
SPEED = 164
OLD_SPEEDS = [84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137]
# nvmlValueType_t: which member of the union holds the value
_VALUES = ["dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"]


def nvlinks(ask: Any, handle: Any) -> dict[str, Any]:
    """{"nvlinks": [...]} of one card, those only that the card has; an inactive one has no other end."""
    states = {
        link: ask("nvmlDeviceGetNvLinkState", handle, link, quiet=(BEYOND_THE_LAST,)) for link in range(MAX_LINKS)
    }
    found = [_link(ask, handle, link, bool(state)) for link, state in states.items() if state is not None]
    active = [each for each in found if each["active"]]
    speeds = _speeds(ask, handle, [each["link"] for each in active])
    for each in active:
        each["speed_mbps"] = speeds[each["link"]]
    return {"nvlinks": found}


def _link(ask: Any, handle: Any, link: int, active: bool) -> dict[str, Any]:
    version = ask("nvmlDeviceGetNvLinkVersion", handle, link)
    kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) if active else None
    peer = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if active else None
    bus_id = text(peer.busId) if peer else None
    remote = None if kind is None else REMOTES.get(kind, "other")
    if bus_id == NO_SUCH_PEER:  # what a switch is called by drivers that do not tell its kind
        bus_id, remote = None, remote or "switch"
    return {
        "link": link,
        "active": active,
        "version": version,
        "speed_mbps": None,
        "remote": remote,
        "remote_bus_id": bus_id,
    }


def _speeds(ask: Any, handle: Any, links: list[int]) -> dict[int, int | None]:
    """MB/s in one direction, by link."""
    if not links:
        return {}
    speeds = _fields(ask, handle, [(SPEED, link) for link in links])
    if not any(speeds) and links[-1] < len(OLD_SPEEDS):
        speeds = _fields(ask, handle, [(OLD_SPEEDS[link], 0) for link in links])
    return {link: int(speeds[at]) if speeds[at] else None for at, link in enumerate(links)}


def _fields(ask: Any, handle: Any, fields: list[tuple[int, int]]) -> list[Any]:
    values = ask("nvmlDeviceGetFieldValues", handle, fields) or []
    read = [
        getattr(each.value, _VALUES[each.valueType])
        if each.nvmlReturn == 0 and each.valueType in range(len(_VALUES))
        else None
        for each in values
    ]
    return read + [None] * (len(fields) - len(read))


def links(ask: Any, handles: dict[int, Any], gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """`ancestors` {"0-1": "PHB"} and `links` {"0-1": "NV2"}; a pair of which nothing could be told is left out."""
    by_index = {gpu["index"]: gpu for gpu in gpus}
    ancestors, joined = {}, {}
    for one, other in combinations(handles, 2):
        pair = f"{one}-{other}"
        ask.about = f"GPU {pair}"
        ancestors[pair] = ANCESTORS.get(ask("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
        joined[pair] = _joined(by_index[one], by_index[other]) or ancestors[pair]
    ask.about = ""
    return {"links": _told(joined), "ancestors": _told(ancestors)}


def p2p(ask: Any, handles: dict[int, Any], _: Any) -> dict[str, Any]:
    """`p2p_read` and `p2p_write`, each {"0-1": "OK"}; a pair that NVML says nothing of is left out."""
    statuses: dict[str, dict[str, str]] = {}
    for name, capability in (("p2p_read", P2P_READ), ("p2p_write", P2P_WRITE)):
        index, found = ctypes.c_uint(capability), {}
        for one, other in combinations(handles, 2):
            ask.about = f"GPU {one}-{other}"
            found[f"{one}-{other}"] = P2P.get(ask("nvmlDeviceGetP2PStatus", handles[one], handles[other], index))
        statuses[name] = _told(found)
    ask.about = ""
    return statuses


def _told(pairs: dict[str, str | None]) -> dict[str, str]:
    return {pair: word for pair, word in pairs.items() if word}


def _joined(one: dict[str, Any], other: dict[str, Any]) -> str | None:
    """NV and the number of links between two cards."""
    here, there = _ends(one), _ends(other)
    forth, back = here[_key(other["bus_id"])], there[_key(one["bus_id"])]
    # cards on a switch reach each other with all the links they have
    through_switch = min(here[NO_SUCH_PEER], there[NO_SUCH_PEER])
    count = min(forth, back) or max(forth, back) or through_switch
    return f"NV{count}" if count else None


def _ends(gpu: dict[str, Any]) -> Counter[str]:
    """How many active links end at which PCI bus id; all switches are one."""
    return Counter(
        NO_SUCH_PEER if link["remote"] == "switch" else _key(link["remote_bus_id"])
        for link in gpu["nvlinks"]
        if link["active"] and (link["remote"] == "switch" or link["remote_bus_id"])
    )


def _key(bus_id: str | None) -> str:
    return (bus_id or "no address").upper()


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
