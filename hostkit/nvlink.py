"""What lies between two cards: counted NVLinks, else what they share on the bus, in the words of `nvidia-smi topo`."""

from __future__ import annotations

import ctypes
from collections import Counter
from itertools import combinations
from typing import Any

MAX_LINKS = 36
SWITCH = 2
# NVML_ERROR_INVALID_ARGUMENT: what a link index beyond the card's last answers
BEYOND_THE_LAST = 2
NO_SUCH_PEER = "FFFFFFFF:FF:FF.0"
# nvmlGpuTopologyLevel_t; 0 is two chips on one board
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# nvmlGpuP2PStatus_t; 4 is switched off in the driver's settings
P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "NS", 5: "NS"}


def links(ask: Any, handles: dict[int, Any], buses: dict[int, Any]) -> dict[str, str]:
    """{"0-1": "NV2"}; a pair of which nothing could be told is left out."""
    ends = {index: _ends(ask, handle) for index, handle in handles.items()}
    found = {}
    for one, other in combinations(handles, 2):
        there, back = ends[one][buses[other]], ends[other][buses[one]]
        # cards on a switch reach each other with all the links they have
        through_switch = min(ends[one][NO_SUCH_PEER], ends[other][NO_SUCH_PEER])
        count = min(there, back) or max(there, back) or through_switch
        if count:
            found[f"{one}-{other}"] = f"NV{count}"
            continue
        ancestor = ANCESTORS.get(ask("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
        if ancestor:
            found[f"{one}-{other}"] = ancestor
    return found


def _ends(ask: Any, handle: Any) -> Counter[str]:
    """How many active links end at which PCI bus id."""
    ends: Counter[str] = Counter()
    for link in range(MAX_LINKS):
        if not ask("nvmlDeviceGetNvLinkState", handle, link, quiet=(BEYOND_THE_LAST,)):
            continue
        if ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == SWITCH:
            ends[NO_SUCH_PEER] += 1
            continue
        peer = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        if peer:
            ends[peer.busId.decode() if isinstance(peer.busId, bytes) else str(peer.busId)] += 1
    return ends


def p2p_read(ask: Any, handles: dict[int, Any]) -> dict[str, str]:
    """{"0-1": "OK"}; a pair that NVML says nothing of is left out."""
    # a number made here: pynvml 13.610 and later define NVML_P2P_CAPS_INDEX_READ as the tuple (0,)
    read = ctypes.c_uint(0)
    statuses = {
        f"{one}-{other}": P2P.get(ask("nvmlDeviceGetP2PStatus", handles[one], handles[other], read))
        for one, other in combinations(handles, 2)
    }
    return {pair: status for pair, status in statuses.items() if status}
