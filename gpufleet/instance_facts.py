"""What the probe tells of gpufleet's own on a box: instances and their activations, runtimes, models, the lock."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpufleet.fact import Count, Fact, Moment


class Service(Fact):
    active: str
    sub: str
    enabled: bool
    pid: int | None
    restarts: int
    since: Moment | None
    masked: bool = False
    fragment: str | None = None
    drop_ins: list[str] = []
    unread: bool = False


class Replaced(Fact):
    enabled: bool
    active: bool
    ports: list[int] = []


class Activation(Fact):
    to: str
    from_: str | None = Field(alias="from")
    step: str
    leaving: list[str]
    began: float
    attempts: Count
    run: str | None
    verb: Literal["activate", "rollback", "restart", "undo"]
    stopped: float | None
    touched: bool
    replaces: list[str] = []


class Held(Fact):
    since: Moment
    by: str | None
    digest: str


class Activated(Fact):
    at: Moment
    digest: str
    down_seconds: float | None
    ready_seconds: float | None
    tokens_per_second: float | None
    outcome: Literal["activated", "put back", "rolled back", "restarted"]


class Instance(Fact):
    current: str | None
    releases: list[str]
    drift: list[str]
    gated: str | None
    stale: bool
    port: int | None
    gpus: list[str] = []
    activation: Activation | None = None
    held: Held | None = None
    history: list[Activated] = []
    replaced: dict[str, Replaced] = {}
    service: Service


class Stored(Fact):
    complete: bool
    link: str | None = None


class Lock(Fact):
    id: str
    who: str | None
    host: str | None
    pid: int | None
    run: str | None
    what: str | None
    since: Moment
    until: Moment
