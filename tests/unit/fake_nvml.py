"""A made-up NVML of three cards, for what no scenario of the lab shows."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml

from hostkit.nvlink import NO_SUCH_PEER

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
        return {0: 0, 1: 5}[index.value]

    def nvmlDeviceGetUUID(self, card: int) -> str:
        return f"GPU-{card}"

    def nvmlDeviceGetCudaComputeCapability(self, card: int) -> tuple[int, int]:
        return (7, 5)

    def nvmlDeviceGetDisplayActive(self, card: int) -> int:
        return 1

    def nvmlDeviceGetCurrPcieLinkGeneration(self, card: int) -> int:
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, card: int) -> int:
        return 3

    def nvmlDeviceGetCurrPcieLinkWidth(self, card: int) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, card: int) -> int:
        return 16

    def nvmlDeviceGetPowerManagementLimit(self, card: int) -> int:
        return 199_600

    def nvmlDeviceGetPowerManagementDefaultLimit(self, card: int) -> int:
        return 260_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, card: int) -> list[int]:
        return [100_000, 280_000]

    def nvmlDeviceGetPersistenceMode(self, card: int) -> int:
        return 0

    def nvmlDeviceGetEccMode(self, card: int) -> list[int]:
        return [0, 1]  # on after the next reset

    def nvmlDeviceGetMigMode(self, card: int) -> list[int]:
        return [1, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, card: int) -> list[Any]:
        return [SimpleNamespace(pid=30, usedGpuMemory=5 << 30), SimpleNamespace(pid=20, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: int) -> list[Any]:
        return [SimpleNamespace(pid=10, usedGpuMemory=8 << 20), SimpleNamespace(pid=30, usedGpuMemory=5 << 30)]

    def nvmlDeviceGetNvLinkVersion(self, card: int, link: int) -> int:
        return 3

    def nvmlDeviceGetFieldValues(self, card: int, fields: list[tuple[int, int]]) -> list[Any]:
        return [
            SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=25_781 + link))
            if field == 164
            else SimpleNamespace(nvmlReturn=3, valueType=0, value=None)
            for field, link in fields
        ]

    def nvmlDeviceGetNvLinkState(self, card: int, link: int) -> int:
        if link >= len(self.ends[card]):
            raise error(2 if self.ends[card] else 3)
        return int(self.ends[card][link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card: int, link: int) -> int:
        return {"switch": 2, "other": 1}.get(self.ends[card][link], 0)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card: int, link: int) -> Any:
        peer = self.ends[card][link]
        return SimpleNamespace(busId={"switch": NO_SUCH_PEER, "other": "00000004:00:00.0"}.get(peer) or BUSES[peer])
