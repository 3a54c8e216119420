"""The cards through a made-up NVML: what no scenario of the lab shows (switches, calls that fail one by one)."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from hostkit import nvml
from hostkit.nvlink import NO_SUCH_PEER

FROM_FILES = {"version": "580.159.03", "cuda": None, "module": "580.159.03"}
BUSES = ["00000000:01:00.0", "00000000:21:00.0", "00000000:41:00.0"]


def error(code: int) -> Exception:
    raised: Exception = pynvml.NVMLError(code)
    return raised


class FakeNvml(SimpleNamespace):
    """Three cards; `ends[card]` are the peers of its links: a card, "switch", or None for an inactive link."""

    NVMLError = pynvml.NVMLError
    nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __init__(self, ends: list[list[Any]], ancestor: int = 30, broken: dict[str, Exception] | None = None) -> None:
        super().__init__()
        self.ends, self.ancestor = ends, ancestor
        for function, raised in (broken or {}).items():
            setattr(self, function, self._raiser(raised))

    @staticmethod
    def _raiser(raised: Exception) -> Any:
        def call(*arguments: Any) -> None:
            raise raised

        return call

    def nvmlDeviceGetCount(self) -> int:
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlSystemGetDriverVersion(self) -> str:
        return "595.45.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetPciInfo(self, card: int) -> Any:
        return SimpleNamespace(busId=BUSES[card].encode())

    def nvmlDeviceGetName(self, card: int) -> str:
        return f"card {card}"

    def nvmlDeviceGetMemoryInfo(self, card: int, version: int | None = None) -> Any:
        return SimpleNamespace(total=24 << 30, used=(1 << 30) if version else (2 << 30))

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return self.ancestor

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, index: Any) -> int:
        assert isinstance(index, ctypes.c_uint)
        return 0

    def nvmlDeviceGetNvLinkState(self, card: int, link: int) -> int:
        if link >= len(self.ends[card]):
            raise error(2 if self.ends[card] else 3)
        return int(self.ends[card][link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card: int, link: int) -> int:
        return 2 if self.ends[card][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card: int, link: int) -> Any:
        peer = self.ends[card][link]
        return SimpleNamespace(busId=NO_SUCH_PEER if peer == "switch" else BUSES[peer])


def test_inactive_links_do_not_count() -> None:
    facts = nvml.describe(FakeNvml([[1, None, 1, None], [0, 0, None, None]]), FROM_FILES)
    assert facts["links"] == {"0-1": "NV2"}
    assert facts["errors"] == []


def test_cards_on_a_switch_have_the_links_both_have() -> None:
    facts = nvml.describe(FakeNvml([["switch"] * 18, ["switch"] * 17 + [None], []]), FROM_FILES)
    assert facts["links"] == {"0-1": "NV17", "0-2": "PHB", "1-2": "PHB"}


def test_a_switch_that_only_its_bus_id_tells() -> None:
    broken = {"nvmlDeviceGetNvLinkRemoteDeviceType": error(13)}
    facts = nvml.describe(FakeNvml([["switch"] * 6, ["switch"] * 6], broken=broken), FROM_FILES)
    assert facts["links"] == {"0-1": "NV6"}
    assert facts["errors"] == []


@pytest.mark.parametrize(
    ("level", "name"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")],
)
def test_ancestors_in_the_words_of_nvidia_smi(level: int, name: str) -> None:
    assert nvml.describe(FakeNvml([[], []], ancestor=level), FROM_FILES)["links"] == {"0-1": name}


def test_calls_that_fail_leave_null_and_take_nothing_with_them() -> None:
    broken: dict[str, Exception] = {
        "nvmlDeviceGetName": error(3),
        "nvmlSystemGetCudaDriverVersion_v2": error(13),
        "nvmlDeviceGetP2PStatus": ctypes.ArgumentError("argument 3: wrong type"),
        "nvmlDeviceGetTopologyCommonAncestor": error(999),
    }
    facts = nvml.describe(FakeNvml([[], []], broken=broken), FROM_FILES)
    assert facts["driver"] == {"version": "595.45.04", "cuda": None, "module": "580.159.03"}
    assert facts["gpus"][1] == {
        "index": 1,
        "uuid": None,
        "name": None,
        "compute_capability": None,
        "memory_mib": 24576,
        "memory_used_mib": 1024,
        "bus_id": "00000000:21:00.0",
        "display_active": None,
        "processes": [],
    }
    assert (facts["links"], facts["p2p_read"]) == ({}, {})
    # "not supported" and "no such function" are answers; these two are not
    assert [message.split(":")[0] for message in facts["errors"]] == [
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetP2PStatus",
    ]


def test_a_lost_card_leaves_the_others_under_their_own_numbers() -> None:
    fake = FakeNvml([[], [], []])

    def handle(index: int) -> int:
        if index == 1:
            raise error(15)
        return index

    fake.__dict__["nvmlDeviceGetHandleByIndex"] = handle
    facts = nvml.describe(fake, FROM_FILES)
    assert [gpu["index"] for gpu in facts["gpus"]] == [0, 2]
    assert facts["links"] == {"0-2": "PHB"}
    assert len(facts["errors"]) == 1 and facts["errors"][0].startswith("nvmlDeviceGetHandleByIndex: ")
