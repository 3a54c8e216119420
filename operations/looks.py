"""The look at all boxes of a run, before any is changed: each is probed once, planned and checked by the rules.

deploy.py runs once for each box; the first that comes has all boxes looked at, in a pool of its own, and the others
wait for its answer. That is no barrier: it works with one box at a time (`--parallel 1`) as with a hundred.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyinfra
from gevent.lock import RLock
from gevent.pool import Pool
from pyinfra.api.host import Host
from pyinfra.api.state import State

from gpufleet import inventory, known, left_behind, waves
from gpufleet.changes import Changes, changes, untouched
from gpufleet.errors import REFUSED, WRONG, BoxError, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.hardware import differences
from gpufleet.layers import checked
from gpufleet.plan import BoxPlan, plan_box
from gpufleet.rules import check
from gpufleet.rules.base import Finding
from gpufleet.settings import Settings
from gpufleet.whole import whole
from operations import discovery, holder, remote, wanted
from operations.run import Stop, session
from operations.wanted import Wanted

AT_ONCE = 50
_lock = RLock()
_answer: list[dict[str, Decided] | Exception] = []


@dataclass(frozen=True)
class Decided:
    """What is to be done on a box."""

    plan: BoxPlan
    changes: Changes


def of_this_run() -> dict[str, Decided]:
    """The boxes that go on, by name. Raises Stop when the configuration is wrong, or the run is refused."""
    with _lock:
        if not _answer:
            try:
                _answer.append(_look_at_all(pyinfra.state, inventory.current()))
            except ConfigError as error:
                _answer.append(Stop(str(error), WRONG))
            except Exception as error:  # all boxes are to see it, and not each to look again
                _answer.append(error)
    if isinstance(_answer[0], Exception):
        raise _answer[0]
    return _answer[0]


def _look_at_all(state: State, fleet: Fleet) -> dict[str, Decided]:
    hosts = [host for host in state.inventory if host in state.active_hosts]
    overrides = _settings(session.overrides)
    asked = wanted.of(fleet, overrides)
    decided: dict[str, Decided] = {}
    failed: set[Host] = set()
    wrong: list[str] = []
    # A box's plan is made when it has answered, while others still look.
    answers = Pool(AT_ONCE).map(lambda host: _decided(host, asked, fleet, overrides), hosts)
    for host, answer in zip(hosts, answers, strict=True):
        try:
            if isinstance(answer, Exception):
                raise answer
            decided[host.name] = _noted(host, answer)
        except ConfigError as error:
            wrong += error.problems
        except Exception as error:  # whatever it is, it is this box's; the others go on
            _failed(host, error)
            failed.add(host)
    if wrong:
        raise ConfigError(wrong)
    left_behind.note(
        fleet, decided, {name: [each.name for each in found.plan.instances] for name, found in decided.items()}
    )
    rollout = waves.agreed(found.plan for found in decided.values())
    refused = [name for name in decided if session.of(name).refused]
    if any(decided[name].plan.settings.rollout.on_refusal == "stop" for name in refused):
        raise _refusal(decided, refused)
    state.fail_hosts(failed)
    going_on = {name: decided[name] for name in fleet.boxes if name in decided and name not in refused}
    for host in hosts:
        if host.name in going_on:
            _to_do(host, going_on[host.name].changes)
    if any(found.changes for found in going_on.values()):
        _refuse_locked(going_on)
    plans = [found.plan for found in going_on.values()]
    candidates = waves.candidates({name: (found.plan, found.changes) for name, found in going_on.items()})
    session.order = waves.order(candidates, waves.serving(plans), rollout)
    session.rollout = rollout
    if any(found.changes and untouched(found.plan.facts) for found in going_on.values()):
        from operations import first_run  # much of the start-up time, which most runs do not need

        first_run.show(going_on)
    return going_on


def _refuse_locked(decided: Mapping[str, Decided]) -> None:
    """Raise Stop when the look found the lock of another deploy, which a run that only looks does not mind."""
    for name, found in decided.items():
        held = found.plan.facts.get("lock")
        if held and not holder.is_dead(held):
            if not session.dry:
                raise holder.refusal(name, held)
            click.echo(f"gpufleet: {name} is locked by {holder.kind(held)} now: {holder.words(held)}", err=True)


def active_hosts() -> list[Host]:
    """The boxes of this run that go on and have not failed."""
    return [
        host for host in pyinfra.state.inventory if host in pyinfra.state.active_hosts and host.name in of_this_run()
    ]


def _decided(
    host: Host, asked: Wanted, fleet: Fleet, overrides: Mapping[str, Any]
) -> tuple[Decided, list[Finding]] | Exception:
    try:
        return _decide(host, fleet, discovery.earlier(host.name) or remote.probe(host, asked), overrides)
    except Exception as error:
        return error


def _decide(
    host: Host, fleet: Fleet, facts: dict[str, Any], overrides: Mapping[str, Any]
) -> tuple[Decided, list[Finding]]:
    whole(host.name, facts)
    changed = differences(fleet.facts[host.name], facts) if host.name in fleet.facts else []
    if not changed:  # else what was known stays, until `gpufleet discover` accepts what is there now
        known.keep(fleet.facts_folder, host.name, facts)
    box = fleet.boxes[host.name]
    plan = plan_box(box, facts, fleet.layers, fleet.stacks, fleet.models, overrides, hardware_changes=changed)
    return Decided(plan, changes(plan)), check(plan, deploying=True)


def _noted(host: Host, found: tuple[Decided, list[Finding]]) -> Decided:
    decided, findings = found
    outcome = session.of(host.name)
    outcome.plan, outcome.findings = decided.plan, findings
    for finding in [each for each in findings if each.level != "info"]:  # `gpufleet plan` shows those, too
        color = {"error": "red", "warning": "yellow"}.get(finding.level)
        host.log_styled(f"{finding.level} {finding.label}: {finding.message}. Remedy: {finding.remedy}", fg=color)
    return decided


def _to_do(host: Host, found: Changes) -> None:
    outcome = session.of(host.name)
    outcome.changes = found.lines()
    outcome.leaving = found.leaving
    outcome.on_hold = set(found.held)
    outcome.changed = {change.instance.name for change in found.instances}
    for line in outcome.changes:
        host.log(f"to do: {line}")
    for line in found.notes():
        host.log(line)


def _refusal(decided: Mapping[str, Decided], refused: list[str]) -> Stop:
    for name in decided:
        session.of(name).untouched = "" if name in refused else "the run was refused"
    return Stop(
        f"the run is refused because of {', '.join(refused)}, and no box was changed. The causes are below; "
        'a box with rollout = {"on_refusal": "leave out"} is left out instead, and the others are deployed',
        REFUSED,
    )


def _failed(host: Host, error: Exception) -> None:
    if not isinstance(error, BoxError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        error = BoxError(host.name, cause, "report this; the box is untouched")
    session.failed(error)
    host.log_styled(str(error), fg="red")


def _settings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return checked({key: value for key, value in overrides.items() if key in Settings.model_fields}, "--data")
