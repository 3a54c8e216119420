"""A box in this run: probed once, planned, checked by the rules; or out of the run, with the reason said."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyinfra
from gevent.lock import RLock
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host

from gpufleet import inventory
from gpufleet.changes import Changes, changes
from gpufleet.errors import WRONG, BoxError, ConfigError
from gpufleet.inventory import Fleet
from gpufleet.layers import checked
from gpufleet.plan import BoxPlan, plan_box
from gpufleet.rules import check
from gpufleet.settings import Settings
from gpufleet.toolkit import NEWEST, NEWEST_BELOW_75
from operations import remote
from operations.session import Stop, guarded, installed, session

T = TypeVar("T")
Commands = Generator[FunctionCommand, None, None]  # what an operation yields
build_lock = RLock()  # what the controller makes for many boxes is made once


@dataclass(frozen=True)
class Deployment:
    """What is to be done on a box, and how to do it there."""

    host: Host
    plan: BoxPlan
    changes: Changes

    def call(self, verb: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Run a verb of the kit on the box. Raises BoxError."""
        return remote.call(self.host, verb, spec, **more)

    def each(self, items: Sequence[T], nothing: str, action: Callable[[T], Any]) -> Commands:
        """`action` on each item in one command; with no item a no-op, which `nothing` gives the reason of."""
        if items:
            yield from self.command(lambda: for_each(action, items))
        else:
            self.host.noop(nothing)

    def command(self, action: Callable[[], Any]) -> Commands:
        """The one command of an operation: `action` on this box, its failure said in one line."""
        yield FunctionCommand(guarded(action), (), {})


def for_each(action: Callable[[T], Any], items: Iterable[T]) -> None:
    for item in items:
        action(item)


def look() -> Deployment | None:
    """Probe this box, plan it and ask the rules; None when it fails or is refused, which the others do not mind."""
    if not installed():
        raise Stop("config.py was not loaded: run pyinfra in the folder that has deploy.py and config.py", WRONG)
    host, fleet = pyinfra.host, inventory.current()
    outcome = session.of(host.name)
    try:
        facts = remote.probe(host, _packages(fleet))
        _whole(host.name, facts)
        _keep(fleet, host.name, facts)
        plan = plan_box(
            fleet.boxes[host.name], facts, fleet.layers, fleet.stacks, fleet.models, _overrides(host.inventory)
        )
        findings = check(plan)
        found = changes(plan)
    except ConfigError as error:
        raise Stop(str(error), WRONG) from None
    except Exception as error:  # whatever it is, it is this box's; the others go on
        _out(host, error)
        return None
    outcome.plan, outcome.findings = plan, findings
    for finding in findings:
        color = {"error": "red", "warning": "yellow"}.get(finding.level)
        host.log_styled(f"{finding.level} {finding.code}: {finding.message}. Remedy: {finding.remedy}", fg=color)
    if outcome.refused:
        return None
    outcome.changes = found.lines()
    outcome.leaving = found.leaving
    outcome.changed = {change.instance.name for change in found.instances}
    for line in outcome.changes:
        host.log(f"to do: {line}")
    return Deployment(host, plan, found)


def _out(host: Host, error: Exception) -> None:
    """Leave a box out of the rest of the run."""
    if not isinstance(error, BoxError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        error = BoxError(host.name, cause, "report this; the box is untouched")
    session.failed(error)
    host.log_styled(str(error), fg="red")
    host.state.fail_hosts({host.state.inventory.get_host(host.name)})


def _whole(name: str, facts: Mapping[str, Any]) -> None:
    """Raises BoxError when a source failed that nothing can be decided without."""
    # Without these nothing can be decided; an empty answer of `instances` is taken as one only when it did not fail.
    failed = {error["source"] for error in facts["errors"]}
    missing = [source for source in ("os", "python", "disks") if not facts.get(source)]
    missing += [source for source in ("instances", "services", "stores") if source in failed]
    if missing:
        said = "; ".join(f"{error['source']}: {error['message']}" for error in facts["errors"])
        raise BoxError(name, f"the probe could not read {', '.join(missing)} ({said})", "look at it on the box")
    for gpu in facts["gpus"]:
        if not gpu.get("compute_capability") or not gpu.get("uuid"):
            raise BoxError(
                name,
                f"GPU {gpu['index']} ({gpu.get('bus_id') or 'no address'}) does not answer",
                "look for Xid in the kernel log; a lost card needs a reboot, or to be reseated",
            )


def _packages(fleet: Fleet) -> set[str]:
    """Names whose state the probe is to tell: every package some stack or toolkit may want."""
    names = {package for stack in fleet.stacks.values() for package in stack.apt}
    layers = [layer.values for found in fleet.layers.values() for layer in found]
    layers += [box.data for box in fleet.boxes.values()]
    toolkits = {stack.cuda_toolkit for stack in fleet.stacks.values()} | {NEWEST, NEWEST_BELOW_75}
    toolkits |= {layer.get("host", {}).get("toolkit") for layer in [*layers, _overrides(pyinfra.host.inventory)]}
    return names | {f"cuda-toolkit-{toolkit}" for toolkit in toolkits if toolkit}


def _overrides(found: Any) -> dict[str, Any]:
    given = {key: value for key, value in found.get_override_data().items() if key in Settings.model_fields}
    return checked(given, "--data")


def _keep(fleet: Fleet, name: str, facts: Mapping[str, Any]) -> None:
    """Keep the facts beside the inventory, for groups by trait and for plans without a connection."""
    path = fleet.facts_folder / f"{name}.json"
    aside = path.with_suffix(".part")
    try:
        fleet.facts_folder.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(
            [f"facts cannot be kept: {error}; make {fleet.facts_folder} writable for this user"]
        ) from None
