"""The plan of a box: (facts, layers, catalogues) → what is to be served how, each value with its reason. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.layers import Layer, Merged, merge, order
from gpufleet.models import Model
from gpufleet.settings import Serve, Settings
from gpufleet.stacks import Stack
from gpufleet.toolkit import toolkit_for
from gpufleet.traits import traits_of

FIRST_PORT = 8000


@dataclass(frozen=True)
class Box:
    """A box as the inventory has it: `data` are its own settings, `groups` the owner's groups it is in."""

    name: str
    data: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    source: str = "inventory"


@dataclass(frozen=True)
class Instance:
    """One model served on one group of GPUs; `args` and `env` are the engine's own names."""

    name: str
    model: Model
    stack: Stack
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    link: str | None
    port: int
    args: dict[str, Any]
    env: dict[str, str]
    because: dict[str, str]


@dataclass(frozen=True)
class BoxPlan:
    """Everything decided about one box."""

    box: Box
    facts: Mapping[str, Any]
    traits: list[str]
    settings: Settings
    because: dict[str, str]
    toolkit: str | None
    instances: list[Instance] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def stacks(self) -> list[Stack]:
        """The stacks in use, each once."""
        return list({instance.stack.name: instance.stack for instance in self.instances}.values())

    @property
    def models(self) -> list[Model]:
        return list({instance.model.name: instance.model for instance in self.instances}.values())

    @property
    def packages(self) -> list[str]:
        """Apt packages the box needs, the toolkit's included."""
        names = {package for stack in self.stacks for package in stack.apt}
        return sorted(names | ({f"cuda-toolkit-{self.toolkit}"} if self.toolkit else set()))


def plan_box(
    box: Box,
    facts: Mapping[str, Any],
    group_layers: Mapping[str, Sequence[Layer]],
    stacks: Catalogue[Stack],
    models: Catalogue[Model],
    overrides: Mapping[str, Any] | None = None,
) -> BoxPlan:
    """Decide everything about one box.

    + facts: what the probe answered, schema 1
    + group_layers: layers of group_data by trait or group
    + overrides: settings of the command line, the strongest
    Raises ConfigError when the settings that meet on this box do not fit together.
    """
    traits = traits_of(facts)
    names = order(traits, box.groups)
    layers = [layer for name in names for layer in group_layers.get(name, ())]
    layers += [Layer(box.source, box.data), Layer("--data", overrides or {})]
    merged = merge(layers)
    plan = BoxPlan(box, facts, traits, merged.settings, merged.because, None)
    entries = [Serve(model=item) if isinstance(item, str) else item for item in merged.settings.serve]
    free = list(range(len(facts.get("gpus") or [])))
    instances: list[Instance] = []
    for entry in entries:
        instances.append(_instance(entry, merged, plan, stacks, models, free, instances, overrides or {}))
    return BoxPlan(
        box, facts, traits, merged.settings, merged.because, toolkit_for(facts, merged.settings, instances), instances
    )


def _instance(
    entry: Serve,
    merged: Merged,
    plan: BoxPlan,
    stacks: Catalogue[Stack],
    models: Catalogue[Model],
    free: list[int],
    before: list[Instance],
    overrides: Mapping[str, Any],
) -> Instance:
    settings, where = merged.settings, f"{plan.name}: serve"
    model = models.find(entry.model, where)
    stack_name = overrides.get("stack") or entry.stack or settings.stack
    if stack_name is None:
        known = ", ".join(sorted(stacks))
        raise ConfigError(
            [f"{where}: {model.name} has no stack; set `stack` in group_data or in its entry; known: {known}"]
        )
    stack = stacks.find(stack_name, where)
    name = entry.name or model.name
    if name in [other.name for other in before]:
        raise ConfigError([f"{where}: two instances are called {name!r}; give one of them another `name`"])

    args, because = _layered(
        (f"stack {stack.name}", stack.args),
        (f"model {model.name}", model.args),
        (None, settings.serve_args),
        ("serve entry", entry.args),
        ("--data", overrides.get("serve_args", {})),
        reasons=merged.because,
        prefix="serve_args",
    )
    env, env_because = _layered(
        (f"stack {stack.name}", stack.env),
        (f"model {model.name}", model.env),
        (None, settings.serve_env),
        ("serve entry", entry.env),
        ("--data", overrides.get("serve_env", {})),
        reasons=merged.because,
        prefix="serve_env",
    )
    because.update({f"env.{key}": value for key, value in env_because.items()})

    gpus: tuple[int, ...] = ()
    if "cpu" not in stack.arch:
        asked = overrides.get("tensor_parallel_size") or entry.tensor_parallel_size or settings.tensor_parallel_size
        size = asked or max(len(free), 1)
        gpus = tuple(free[:size])
        del free[:size]
        args["tensor-parallel-size"] = size
        because["tensor-parallel-size"] = "tensor_parallel_size" if asked else "computed: the box's free GPUs"
    facts_gpus = plan.facts.get("gpus") or []
    uuids = tuple(facts_gpus[index]["uuid"] for index in gpus)
    if uuids:
        # By UUID and in PCI order: CUDA's own order is by speed and differs from nvidia-smi's on unlike cards.
        env.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=",".join(uuids))
        because["env.CUDA_VISIBLE_DEVICES"] = "computed: the instance's GPUs"

    port = entry.port or _free_port(name, settings, plan.facts, before)
    defaults = {"host": "0.0.0.0", "served-model-name": model.served_name}  # noqa: S104 - serving the LAN is the job
    for key, value in defaults.items():
        if key not in args:
            args[key], because[key] = value, "default"
    args["port"], because["port"] = port, "serve entry" if entry.port else "computed: the first free one"
    return Instance(name, model, stack, gpus, uuids, _link(plan.facts, gpus), port, args, env, because)


def _free_port(name: str, settings: Settings, facts: Mapping[str, Any], before: list[Instance]) -> int:
    """The port the instance has on the box, so that a new neighbour does not move it; else the first that is free."""
    found = facts.get("instances") or {}
    named = {item.port for item in settings.serve if not isinstance(item, str) and item.port}
    taken = named | {other.port for other in before}
    has = {other: known.get("port") for other, known in found.items()}
    if has.get(name) and has[name] not in taken:
        return int(has[name])
    planned = {item if isinstance(item, str) else item.name or item.model for item in settings.serve}
    taken |= {port for other, port in has.items() if other in planned and other != name and port}
    return next(number for number in range(FIRST_PORT, 65536) if number not in taken)


def _layered(
    *sources: tuple[str | None, Mapping[str, Any]], reasons: Mapping[str, str], prefix: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge flags (or variables), weakest first; None as source: the settings, whose keys have their own reasons."""
    merged: dict[str, Any] = {}
    because: dict[str, str] = {}
    for source, values in sources:
        for key, value in values.items():
            old = merged.get(key)
            merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
            because[key] = source or _reason(reasons, f"{prefix}.{key}")
    return merged, because


def _reason(reasons: Mapping[str, str], dotted: str) -> str:
    found = [source for key, source in reasons.items() if key == dotted or key.startswith(f"{dotted}.")]
    return found[-1] if found else "settings"


def _link(facts: Mapping[str, Any], gpus: Sequence[int]) -> str | None:
    """The weakest link inside a group of GPUs, None for fewer than two."""
    links = facts.get("links") or {}
    found = [links.get(f"{a}-{b}", "SYS") for a in gpus for b in gpus if a < b]
    rank = ["SYS", "NODE", "PHB", "PXB", "PIX"]
    return min(found, key=lambda link: rank.index(link) if link in rank else 100 + int(link[2:])) if found else None
