"""A topology scenario: a box written down in a page of JSON, for plans without a box and for the lab."""

from __future__ import annotations

import json
import re
import uuid
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from gpufleet.errors import ConfigError, nearest
from gpufleet.facts import SCHEMA
from gpufleet.kept import LEAST_CARD_MIB
from gpufleet.schema import Data, OneLine, read, worded
from gpufleet.settings import Expect
from gpufleet.topology import rank

# By driver branch, newest first: the CUDA version that a driver of that branch or above reports (the release notes of
# each CUDA version name the driver that came with it).
_CUDA = [
    *((610, 13030), (595, 13020), (590, 13010), (580, 13000)),
    *((575, 12090), (570, 12080), (565, 12070), (560, 12060), (555, 12050), (550, 12040), (545, 12030), (535, 12020)),
    *((530, 12010), (525, 12000), (520, 11080), (515, 11070), (510, 11060), (495, 11050), (470, 11040), (465, 11030)),
    *((460, 11020), (455, 11010), (450, 11000), (440, 10020), (418, 10010), (410, 10000), (0, 9000)),
]


def _link(word: str) -> str:
    rank(word)  # raises ValueError for what is no link
    return word


Link = Annotated[str, AfterValidator(_link)]
Pair = Annotated[str, worded(r"^\d+-\d+$", "a pair of GPUs such as 0-1")]


def _capability(value: Any) -> Any:
    """`8.6`, as nvidia-smi prints it, is read as [8, 6]."""
    text = str(value)
    return [int(part) for part in text.split(".")] if re.fullmatch(r"\d+\.\d", text) else value


def _mib(value: Any) -> Any:
    """`24576 MiB`, as nvidia-smi prints it, is read as 24576."""
    found = re.fullmatch(r"(\d+) MiB", value) if isinstance(value, str) else None
    return int(found[1]) if found else value


Capability = Annotated[
    list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2), BeforeValidator(_capability)
]


P2p = Literal["OK", "CNS", "GNS", "TNS", "NS"]


class Page(Data):
    """Read tolerantly: a scenario may hold more than this version knows; `unknown_keys` tells."""

    model_config = ConfigDict(extra="allow")


class Gpu(Page):
    """One card: its index as NVML counts, its memory in MiB."""

    index: Annotated[int, Field(ge=0, lt=1024)]
    name: OneLine
    compute_capability: Capability
    memory_mib: Annotated[int, Field(ge=LEAST_CARD_MIB, lt=2**31), BeforeValidator(_mib)]
    bus_id: OneLine = ""
    uuid: Annotated[str, worded(r"^GPU-[0-9A-Fa-f-]+$", "a UUID as nvidia-smi -L prints it, GPU-…")] | None = None


class Scenario(Page):
    """A box's cards and what joins them; `links` has every pair i < j, in the words of `nvidia-smi topo -m`."""

    name: Annotated[OneLine, Field(min_length=1)]
    driver: Annotated[str, worded(r"^\d+(\.\d+)*$", 'a version such as "580.159.03"')] | None
    gpus: list[Gpu] = []
    links: dict[Pair, Link] = {}
    p2p_read: dict[Pair, P2p] = {}
    expect: Expect = Expect()  # as in settings: what the owner knows to be there
    note: OneLine = ""
    nvswitch: bool = False  # for the lab: all NVLinks end at a switch
    faults: dict[str, int | str] = {}  # for the lab: NVML functions that fail


def load(path: Path) -> dict[str, Any]:
    """The facts of the box in a scenario's file. Raises ConfigError as `page` does."""
    return facts_of(page(path))


def page(path: Path) -> Scenario:
    """A scenario's file. Raises ConfigError naming the file and all that is wrong in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: cannot be read: {' '.join(str(error).split())}"]) from None
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: must be a mapping with name, driver, gpus and links"])
    scenario = read(Scenario, data, str(path))
    problems = [f"{path}: {problem}" for problem in _problems(scenario)]
    if problems:
        raise ConfigError(problems)
    return scenario


def unknown_keys(scenario: Scenario) -> list[str]:
    """A line for each key that this version does not know, with the nearest one that it does."""
    known, of_gpu = Scenario.model_fields, Gpu.model_fields
    lines = [f"{key!r} is not known here and ignored{nearest(key, known)}" for key in scenario.model_extra or {}]
    for gpu in scenario.gpus:
        lines += [f"GPU {gpu.index}: {key!r} is ignored{nearest(key, of_gpu)}" for key in gpu.model_extra or {}]
    return lines


def _problems(scenario: Scenario) -> list[str]:
    indexes = [gpu.index for gpu in scenario.gpus]
    uuids = [gpu.uuid for gpu in scenario.gpus if gpu.uuid is not None]
    if len(set(indexes)) != len(indexes):
        return ["gpus: an index is there twice"]
    if len(set(uuids)) != len(uuids):
        return ["gpus: a UUID is there twice"]
    if scenario.gpus and scenario.driver is None:
        return ['driver: the box has cards, so give the driver\'s version: "580.159.03"']
    pairs = {f"{a}-{b}" for a, b in combinations(sorted(indexes), 2)}
    problems = [f"links: {pair!r} is missing" for pair in sorted(pairs - set(scenario.links))]
    for key, given in (("links", scenario.links), ("p2p_read", scenario.p2p_read)):
        problems += [
            f"{key}: {pair!r} is no pair i-j of these GPUs with i < j{nearest(pair, pairs)}"
            for pair in sorted(set(given) - pairs)
        ]
    return problems


def facts_of(scenario: Scenario) -> dict[str, Any]:
    """Facts as the probe would answer them, as far as a scenario tells; what it does not tell is not in them."""
    fields = set(Gpu.model_fields)
    gpus = [
        gpu.model_dump(include=fields) | {"uuid": gpu.uuid or gpu_uuid(scenario.name, gpu.index)}
        for gpu in scenario.gpus
    ]
    version = scenario.driver
    cuda = _text(cuda_of(version)) if version else None
    driver = {"version": version, "cuda": cuda, "module": None, "flavour": None}
    return {
        "schema": SCHEMA,
        "hostname": scenario.name,
        "gpus": sorted(gpus, key=lambda gpu: gpu["index"]),
        "links": dict(scenario.links),
        "p2p_read": dict(scenario.p2p_read),
        "driver": driver if gpus and version else None,
    }


def gpu_uuid(name: str, index: int) -> str:
    """A UUID for a card of a scenario, always the same."""
    return "GPU-" + str(uuid.uuid5(uuid.NAMESPACE_URL, f"gpufleet-lab:{name}:{index}"))


def cuda_of(driver: str) -> int:
    """The newest CUDA a driver knows, as NVML gives it: 13000 for 13.0."""
    branch = int(driver.split(".")[0])
    return next(cuda for least, cuda in _CUDA if branch >= least)


def _text(cuda: int) -> str:
    return f"{cuda // 1000}.{cuda % 1000 // 10}"
