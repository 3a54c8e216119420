"""Three boxes that most runs are tried on, and how the report of a run is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.operations.boxes import Boxes, boxes
from tests.unit.fleets import cpu_facts, gpu_facts

MACHINE: dict[str, Any] = {
    "cpu": cpu_facts()["cpu"],
    "memory": {"total_mib": 65536, "available_mib": 60000, "swap_mib": 0},
}
TURING = gpu_facts(**MACHINE)
AMPERE = gpu_facts((8, 6), link="PHB", **MACHINE)
CPU = cpu_facts(**MACHINE)
ASKS_FOR_GPUS = {"expect": {"gpus": 2}}  # on a box without: an error
LEFT_OUT = {**ASKS_FOR_GPUS, "rollout": {"on_refusal": "leave out"}}


@pytest.fixture
def three() -> Iterator[Boxes]:
    with boxes({"turing-1": TURING, "ampere-1": AMPERE, "cpu-1": CPU}) as found:
        yield found


def state(output: str, box: str) -> str:
    """The last column of the report's row."""
    (row,) = [line for line in output.splitlines() if re.match(rf"{box}\s", line)]
    return re.split(r"\s{2,}", row.rstrip())[-1]


def line(output: str, box: str) -> str:
    """The report's one line about what is wrong with a box."""
    (found,) = [line for line in output.splitlines() if line.startswith(f"{box}: ")]
    return found
