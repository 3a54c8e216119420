"""One model served on one group of GPUs: every flag and variable of it, and who said so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from gpufleet.dialect import DIALECTS
from gpufleet.environment import PLACEHOLDER, always, computed
from gpufleet.errors import ConfigError
from gpufleet.fit import memory_of
from gpufleet.flags import compute_all_reduce, compute_captures, compute_requests, compute_runner, said_of, written
from gpufleet.memory import Memory
from gpufleet.models import Model
from gpufleet.paths import ROOT
from gpufleet.placement import Place
from gpufleet.provenance import Given, Values
from gpufleet.runtime import Runtime, runtime_of
from gpufleet.settings import Rollout, Settings
from gpufleet.stacks import Stack
from gpufleet.toolkit import toolkit_for
from gpufleet.topology import weakest
from gpufleet.traits import traits_of_group
from gpufleet.view import View

TEMPLATE = "chat_template.jinja"  # of a release, where the model's page has one
FIRST_PORT, LAST_PORT = 8000, 65535
UNITS = ("resume", "host", "share")  # gpufleet-resume.service and its like are no instances


@dataclass(frozen=True)
class Instance:
    """`args` and `env` are the engine's own names; `flags`, `variables` and `choices` have the history of each value.

    + gpus: indexes of NVML, in PCI order; `uuids` and `bus_ids` are theirs
    + sizes: memory of its GPUs in MiB, None where the driver does not say
    + size: GPUs it is to have; more than `gpus` when the box has not enough
    + link: the weakest between two of its GPUs, None for fewer than two
    + foreign: flags and variables that were left out, being another engine's, and the layers that gave them
    + rollout: how it is brought to serve, by the settings of its traits
    + models_home: the folder that models lie in, where that is another than the product's own
    + memory: of the GPU with the least; None when the model's page gives no sizes, and on CPUs
    + replaces: units of the owner's whose place it takes
    """

    name: str
    model: Model
    stack: Stack
    runtime: Runtime
    traits: tuple[str, ...]
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    bus_ids: tuple[str, ...]
    sizes: tuple[int | None, ...]
    size: int
    link: str | None
    port: int
    cuda_toolkit: str | None
    streams: int | None
    memory: Memory | None
    flags: Values
    variables: Values
    choices: Values
    foreign: Mapping[str, str]
    rollout: Rollout
    replaces: tuple[str, ...] = ()
    models_home: str | None = None

    @property
    def args(self) -> dict[str, Any]:
        return self.flags.values

    @property
    def env(self) -> dict[str, str]:
        return self.variables.values

    @cached_property
    def because(self) -> dict[str, str]:
        """The source of each flag, of each variable as `env.NAME`, and of `stack`, `gpus` and other choices."""
        variables = {f"env.{key}": source for key, source in self.variables.reasons().items()}
        return self.choices.reasons() | self.flags.reasons() | variables


def template_at(name: str) -> str:
    """Where an instance has its model's `chat_template`, as a file of its release."""
    return f"{ROOT}/instances/{name}/current/{TEMPLATE}"


def make(view: View, facts: Mapping[str, Any], place: Place, before: Sequence[Instance]) -> Instance:
    """Resolve everything about an instance in its place; `before` are the box's instances so far, for their ports."""
    entry, model, stack = place.entry, place.model, place.stack
    dialect = DIALECTS[stack.engine]
    links = facts.get("links") or {}
    link = weakest(links, place.gpus)
    traits = traits_of_group(facts, place.gpus, link)
    layers = list(view.layers(entry, traits))
    settings = view.settings(traits).settings
    base = entry.name or model.name
    name = base if place.number == 1 else f"{base}-{place.number}"
    if name in UNITS:
        problem = f"an instance cannot be named {name}: gpufleet-{name}.service is a unit of gpufleet's own"
        raise ConfigError([f"{view.box.name}: serve: {problem}; give it another `name`"])
    given = written(stack, model, layers, traits)
    flags, variables = given.args, given.env

    said = said_of("streams", model, stack, layers, traits)
    streams = compute_requests(flags, stack, model, said)
    by_index = {gpu["index"]: gpu for gpu in facts.get("gpus") or []}
    cards = [by_index[index] for index in place.gpus]
    on_gpus = "cpu" not in stack.arch
    if on_gpus:
        flags.lay(place.why or "default", {dialect.tensor_parallel: place.size})
        compute_captures(flags, dialect, streams)
        compute_all_reduce(flags, stack, len(cards), link)
        compute_runner(flags, variables)
        if stack.device_ids:
            indexes = ",".join(str(number) for number in range(len(cards)))
            flags.lay("computed: indexes within CUDA_VISIBLE_DEVICES", {"device-ids": indexes})
    names = [model.served_name, *model.aliases] if model.aliases and dialect.several_names else model.served_name
    defaults = {dialect.host: "0.0.0.0", dialect.served_name: names}  # noqa: S104 - serving the LAN is the job
    flags.lay("default", {key: value for key, value in defaults.items() if key not in flags.values})
    if model.template is not None and dialect.chat_template and dialect.chat_template not in flags.values:
        flags.lay("the model's chat_template", {dialect.chat_template: template_at(name)})
    port, why = _port(view.box.name, name, place, settings, facts, before)
    flags.lay(why, {dialect.port: port})

    toolkit = toolkit_for(stack, settings, cards or list(by_index.values()))
    runtime = runtime_of(stack, facts, toolkit)
    _fill_in(variables, facts)
    for reason, found in computed(name, runtime, model, cards, toolkit):
        variables.lay(reason, {key: value for key, value in found.items() if key not in variables.values})
    if cards:
        variables.lay("computed: the instance's GPUs", always(cards))
    return Instance(
        name=name,
        model=model,
        stack=stack,
        runtime=runtime,
        traits=tuple(traits),
        gpus=place.gpus,
        uuids=tuple(str(gpu["uuid"]) for gpu in cards),
        bus_ids=tuple(str(gpu["bus_id"]) for gpu in cards),
        sizes=tuple(gpu.get("memory_mib") for gpu in cards),
        size=place.size,
        link=link,
        port=port,
        cuda_toolkit=toolkit,
        streams=streams,
        memory=memory_of(model, stack, cards, flags.values),
        flags=flags,
        variables=variables,
        choices=_choices(place, link, streams, said, toolkit, settings),
        foreign=given.foreign,
        rollout=settings.rollout,
        replaces=tuple(dict.fromkeys(entry.replaces)),
        models_home=settings.host.models,
    )


def _choices(
    place: Place,
    link: str | None,
    streams: int | None,
    said: Sequence[Given],
    toolkit: str | None,
    settings: Settings,
) -> Values:
    """What the plan chose besides flags and variables, and why."""
    choices = Values()
    choices.lay(place.stack_why, {"stack": place.stack.name})
    if place.gpus:
        joined = f", joined by {link}" if link else ""
        choices.lay(
            f"computed: {place.size} of a kind{joined}, the best-joined that are free", {"gpus": list(place.gpus)}
        )
    for source, value in said:
        choices.lay(source, {"streams": value})
    if streams is not None and (not said or said[-1].value != streams):
        choices.lay("computed: no more than the requests it takes at once", {"streams": streams})
    owner = settings.host.toolkit is not None
    why = (
        "host.toolkit" if owner else f"stack {place.stack.name}" if place.stack.cuda_toolkit else "computed: the newest"
    )
    choices.lay(why, {"cuda_toolkit": toolkit})
    return choices


def _fill_in(variables: Values, facts: Mapping[str, Any]) -> None:
    """Put the box's physical cores for `{cores}`; a variable that needs them goes where they are not known."""
    cores = (facts.get("cpu") or {}).get("cores")
    for key, value in list(variables.values.items()):
        if isinstance(value, str) and PLACEHOLDER in value:
            if cores:
                filled = value.replace(PLACEHOLDER, str(cores))
                variables.lay(f"{variables.source(key)}: the box's physical cores", {key: filled})
            else:
                del variables.values[key]


def _port(
    box: str, name: str, place: Place, settings: Settings, facts: Mapping[str, Any], before: Sequence[Instance]
) -> tuple[int, str]:
    """The port that was given, or that the instance has on the box, so that a new neighbour does not move it.

    Else the first that is free, from the model's own port, or 8000. Raises ConfigError for one that there is not.
    """
    if place.entry.port:
        port = place.entry.port + place.number - 1
        if port > LAST_PORT:
            raise ConfigError(
                [f"{box}: serve: {name} would have port {port}; give the first instance one below {port}"]
            )
        return port, "serve entry"
    named = {item.port for item in settings.serve if not isinstance(item, str) and item.port}
    taken = named | {other.port for other in before}
    has = {other: known.get("port") for other, known in (facts.get("instances") or {}).items()}
    if has.get(name) and has[name] not in taken:
        return int(has[name]), "computed: the port it has"
    planned = {item if isinstance(item, str) else item.name or item.model for item in settings.serve}
    taken |= {port for other, port in has.items() if other in planned and other != name and port}
    first = place.model.port or FIRST_PORT
    port = next(
        number for number in chain(range(first, LAST_PORT + 1), range(FIRST_PORT, first)) if number not in taken
    )
    return port, f"model {place.model.name}" if port == place.model.port else "computed: the first free one"
