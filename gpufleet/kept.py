"""Facts as they are kept, as types: the probe's answer without what changes from one look to the next."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

from pydantic import ValidationError, model_validator

from gpufleet.fact import Count, Fact, Nothing
from gpufleet.facts import Clock, Facts, Gpu, Listener, Memory, Pcie, Process, SourceError, Unit, Xid
from gpufleet.settings import Port

DIGITS = 15  # of a number: what a box counts has fewer, and a float holds so many exactly
LEAST_CARD_MIB = 256  # no card that CUDA still knows has less


class KeptPcie(Pcie):
    gen: int | None = None


class KeptGpu(Gpu):
    memory_used_mib: Count | None = None
    processes: list[Process] = []
    pcie: KeptPcie


class KeptMemory(Memory):
    available_mib: Count | None = None  # type: ignore[assignment]


class KeptInstance(Fact):
    port: Port | None = None


class Kept(Facts):
    """The file of one box."""

    ports: dict[str, Listener] = {}
    units: dict[str, Unit] = {}
    errors: list[SourceError] = []
    xid: list[Xid] = []
    clock: Clock | Nothing = Nothing()  # type: ignore[assignment]
    shm_free_mib: Count | None = None  # type: ignore[assignment]
    memory: KeptMemory | Nothing
    gpus: list[KeptGpu]  # type: ignore[assignment]
    instances: dict[str, KeptInstance]  # type: ignore[assignment]

    @model_validator(mode="after")
    def _cards(self) -> Kept:
        """Cards that a plan can be made of: each there once, all of them known well enough."""
        counts = Counter([gpu.index for gpu in self.gpus] + [gpu.uuid for gpu in self.gpus])
        if len(counts) != 2 * len(self.gpus):
            raise ValueError("an index or a UUID is there twice")
        if any(not gpu.uuid or not gpu.compute_capability for gpu in self.gpus):
            raise ValueError("a card without UUID or compute capability")
        if any(min(gpu.compute_capability or []) < 0 for gpu in self.gpus):
            raise ValueError("a compute capability below 0")
        if any(gpu.memory_mib is not None and gpu.memory_mib < LEAST_CARD_MIB for gpu in self.gpus):
            raise ValueError("a card without memory")
        return self


def parse(text: str) -> dict[str, Any]:
    """A file's facts. Raises ValueError for what no probe writes, and RecursionError for what is nested that deep."""
    facts = json.loads(text, parse_int=_count, parse_constant=_no_number)
    if said := problem(facts):
        raise ValueError(said)
    found: dict[str, Any] = facts
    return found


def problem(facts: Any) -> str:
    """The first thing for which facts could not be read again once they are kept; empty when there is none."""
    try:
        Kept.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'facts'}: {first['msg']}"
    return ""


def _count(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"{digits[:DIGITS]}… is no count")
    return int(digits)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
