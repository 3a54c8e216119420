"""`gpufleet doctor`: whether a deploy would go well, found out without a change on any box."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpufleet import doctoring, doctoring_view, left_behind, terminal, waves
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.doctoring_addresses import needs_default_index, of_box, of_controller
from gpufleet.errors import BoxError, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.pending import Pending, pending
from gpufleet.screen import screen


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(inventory: Path, limit: tuple[str, ...], as_json: bool) -> None:
    """Find out whether a deploy of INVENTORY would go well: nothing is changed on any box, nothing is left there.

    Host keys, login, sudo, Python, apt, disks, clocks, what has to be fetched, drivers, ports, and all rules. The
    addresses that would be asked from outside get a HEAD request each, from the box or from here, whoever would fetch.

    Exit codes: 0 a deploy would begin (there may be warnings); 1 a box would fail, or cannot be looked at; 3 a rule
    refuses a box; 2 the call or the configuration is wrong; when several apply, the first of 2, 1, 3; 130 interrupted.
    """
    from operations.preflight import Boxes  # the only way to a box; it brings pyinfra and paramiko, so only here

    with configuration():
        fleet = reach.fleet_of(inventory)
        names = fleet.select(limit, ())
        boxes = Boxes(fleet, names)
        plans, wrong = planned(fleet, boxes.seen)
        if problem := disagreement(plans):
            wrong = {**wrong, **{name: [*wrong.get(name, []), *problem] for name in plans}}
        needed = {name: of_box(wanted) for name, wanted in plans.items()}
        boxes.ask({name: {"addresses": list(needed.get(name, {})), "apt": True} for name in names})
        own = controllers(list(plans.values()))
    found = [
        doctoring.examined(boxes.seen[name], plans.get(name), wrong.get(name, []), needed.get(name, {}))
        for name in names
    ]
    every = [*([own] if own else []), *found]
    for line in left_behind.lines(fleet):
        click.echo(terminal.plain(f"gpufleet: {line}"), err=True)
    if as_json:
        reach.print_json(doctoring.document(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), every))
    else:
        console = screen()
        for line, style in doctoring_view.lines(every):
            console.print(terminal.one_line(line), markup=False, style=style)
        console.print(doctoring_view.summary(found), markup=False)
    sys.exit(doctoring.exit_code(every))


def planned(fleet: Fleet, seen: Mapping[str, doctoring.Seen]) -> tuple[dict[str, Pending], dict[str, list[str]]]:
    """(what a deploy would do, by box; what is wrong with the settings of those where that cannot be told)"""
    plans: dict[str, Pending] = {}
    wrong: dict[str, list[str]] = {}
    for name, found in seen.items():
        if found.facts is None:
            continue
        try:
            plans[name] = pending(fleet, name, found.facts)
        except ConfigError as error:
            wrong[name] = error.problems
        except BoxError as error:
            found.ended("look", error.cause, error.remedy)
    return plans, wrong


def disagreement(plans: Mapping[str, Pending]) -> list[str]:
    """Settings of the whole run that are not the same for all boxes, a text each."""
    try:
        waves.agreed(wanted.plan for wanted in plans.values())
    except ConfigError as error:
        return error.problems
    return []


def controllers(plans: list[Pending]) -> doctoring.Box | None:
    """Whether this controller reaches what it would fetch from; None when nothing is to be fetched."""
    from gpufleet.wheelhouse.items import FetchError
    from gpufleet.wheelhouse.places import places
    from hostkit import reachable

    needed = of_controller(plans)
    lines: list[doctoring.Line] = []
    if needs_default_index(plans):
        try:
            mirrors: Any = plans[0].plan.settings.mirrors.model_copy(update={"pypi": None})
            needed = {url: "wheels" for url in places(mirrors).indexes if url.startswith("http")} | needed
        except FetchError as error:
            lines.append(doctoring.Line("network", "warning", str(error), "set mirrors.pypi"))
    found = doctoring.network(reachable.ask(list(needed)), needed, apt_needed=False)
    # It may have in its store what it cannot fetch now: that alone stops no deploy.
    lines += [doctoring.Line(line.check, "warning", line.cause, line.remedy) if line.remedy else line for line in found]
    return doctoring.Box(doctoring.CONTROLLER, lines, 0) if lines else None
