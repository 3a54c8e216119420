"""What the probe (hostkit.probe) answers of a box, as types: the schema of the facts, and facts fit for publication.

`python -m gpufleet.facts > docs/reference/facts.schema.json` writes the JSON schema anew.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from gpufleet.fact import Count, Fact, Moment, Nothing
from gpufleet.instance_facts import Instance, Lock, Stored

SCHEMA = 2

Pair = Annotated[str, StringConstraints(pattern=r"^[0-9]+-[0-9]+$")]
Link = Annotated[str, StringConstraints(pattern=r"^(NV[1-9][0-9]*|PIX|PXB|PHB|NODE|SYS)$")]
Port = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
Ancestor = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
P2p = Literal["OK", "CNS", "GNS", "TNS", "NS"]


class Os(Fact):
    id: str
    version_id: str
    codename: str
    arch: str
    kernel: str
    glibc: str


class Python(Fact):
    version: str
    executable: str
    headers: bool


class Cpu(Fact):
    model: str
    cores: Count
    threads: Count
    flags: list[str]
    numa_nodes: Count
    governor: str | None


class Memory(Fact):
    total_mib: Count
    available_mib: Count
    swap_mib: Count


class Disk(Fact):
    free_mib: Count
    total_mib: Count
    filesystem: str | None
    mount: str | None = None
    coming_mib: Count = 0


class ModelsHome(Fact):
    link: str | None
    empty: bool
    ours: bool


class Place(Fact):
    exists: bool
    real: str
    unmounted: str | None
    closed: str | None
    foreign: str | None


class Clock(Fact):
    synchronized: bool | None
    now: Moment


class Iommu(Fact):
    enabled: bool
    passthrough: bool | None
    acs: list[str] | None


class Driver(Fact):
    version: str
    cuda: str | None
    module: str | None
    flavour: Literal["open", "closed"] | None
    module_on_disk: str | None


class Pcie(Fact):
    gen: int | None
    gen_max: int | None
    width: int | None
    width_max: int | None


class Power(Fact):
    limit_w: int | None
    default_w: int | None
    min_w: int | None
    max_w: int | None


class NvLink(Fact):
    link: Count
    active: bool
    version: int | None
    speed_mbps: int | None
    remote: Literal["gpu", "switch", "other"] | None
    remote_bus_id: str | None


class Process(Fact):
    pid: int
    memory_mib: int | None
    name: str | None
    kind: Literal["compute", "graphics"]
    unit: str | None = None


class Gpu(Fact):
    index: Count
    uuid: str | None
    name: str | None
    compute_capability: Annotated[list[int], Field(min_length=2, max_length=2)] | None
    memory_mib: int | None
    memory_used_mib: int | None
    bus_id: str | None
    display_active: bool | None
    pcie: Pcie
    power: Power
    persistence: bool | None
    ecc: bool | None
    mig: bool | None
    nvlinks: list[NvLink]
    processes: list[Process]


class Xid(Fact):
    code: Count
    bus_id: str
    count: Annotated[int, Field(ge=1)]
    last: Annotated[str, StringConstraints(max_length=200)]


class Package(Fact):
    version: str
    origin: str | None
    candidate: str | None


class Upgrades(Fact):
    enabled: bool
    blacklist: list[str]


class Apt(Fact):
    installed: list[str]
    held: list[str]
    upgrades: Literal["current", "changed", "missing"]


class Refused(Fact):
    wanted: bool | int | str
    why: str


class Host(Fact):
    settings: str | None
    unit: Literal["current", "changed", "missing"]
    refused: dict[str, Refused]


class Compilers(Fact):
    gcc: str | None
    gxx: str | None = Field(alias="g++")


class Listener(Fact):
    pid: int | None
    command: str | None
    unit: str | None


class Unit(Fact):
    id: str
    there: bool
    active: str
    state: str
    wanted_by: list[str]


class User(Fact):
    exists: bool


class SourceError(Fact):
    source: str
    message: str


class Facts(Fact):
    """The whole answer; a source that failed leaves the emptiest value that its keys may have."""

    schema_: Literal[2] = Field(alias="schema")
    at: Moment
    hostname: str
    hostname_resolves: bool
    machine_id: str | None
    os: Os | Nothing
    python: Python | Nothing
    cpu: Cpu | Nothing
    memory: Memory | Nothing
    overcommit_memory: int | None
    swappiness: int | None = None
    hosts_entry: bool | None = None
    host: Host | None = None
    disks: dict[str, Disk]
    models_home: ModelsHome | None = None
    places: dict[str, Place] = {}
    shm_mib: Count
    shm_free_mib: Count
    virtualization: str | None
    secure_boot: bool | None
    clock: Clock
    iommu: Iommu
    driver: Driver | None
    nouveau: bool
    gpus: list[Gpu]
    links: dict[Pair, Link]
    ancestors: dict[Pair, Ancestor]
    p2p_read: dict[Pair, P2p]
    p2p_write: dict[Pair, P2p]
    xid: list[Xid]
    kernel_log: bool
    packages: dict[str, str | None]
    holds: list[str]
    nvidia_packages: dict[str, Package]
    nvidia_installer: bool
    cuda_compat: list[str]
    unattended_upgrades: Upgrades
    apt: Apt | None = None
    display_manager: str | None
    compilers: Compilers
    toolkits: dict[str, str]
    ports: dict[Port, Listener]
    units: dict[str, Unit] = {}
    instances: dict[str, Instance]
    runtimes: dict[str, Stored]
    models: dict[str, Stored]
    user: User
    lock: Lock | None = None
    errors: list[SourceError]


def problems(facts: Any) -> list[str]:
    """A line for each place that is not as the schema says; empty when the facts are valid."""
    try:
        Facts.model_validate(facts)
    except ValidationError as error:
        return [
            f"{_place(each['loc'])}: {each['msg']}" for each in error.errors() if Nothing.__name__ not in each["loc"]
        ]
    return []


def _place(parts: tuple[int | str, ...]) -> str:
    """`gpus.0.uuid`, without the names that pydantic gives the branches of a union."""
    branches = {kind.__name__ for kind in Fact.__subclasses__()}
    return ".".join(str(part) for part in parts if part not in branches) or "facts"


def json_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12."""
    schema = Facts.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def json_schema_text() -> str:
    """The text of docs/reference/facts.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(json_schema_text(), end="")
