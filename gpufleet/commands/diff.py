"""`gpufleet diff`: what a deploy would change, down to the lines of each file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpufleet import difference, terminal, waves
from gpufleet.changes import InstanceChange
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.errors import DONE, REFUSED, WOULD_CHANGE, BoxError
from gpufleet.fleet import Fleet
from gpufleet.pending import Pending, pending
from gpufleet.status_view import held_line

SCHEMA = 1
UNITS = "/etc/systemd/system"
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def diff(inventory: Path, limit: tuple[str, ...], as_json: bool) -> None:
    """Show what a deploy would change on the boxes of INVENTORY, and of each release the files that would be others.

    The boxes are looked at, and nothing is changed on them but /opt/gpufleet/kit. Values that look like secrets are
    hidden.

    Exit codes: 0 nothing to change; 1 a box could not be looked at; 2 the call or the configuration is wrong; 3 a rule
    refuses a box; 5 something would be changed; 130 interrupted.
    """
    with configuration():
        fleet = reach.fleet_of(inventory)
        boxes = reach.connect(fleet, fleet.select(limit, ()), packages=True)
        wanted = planned(fleet, boxes)
    there = releases(boxes, wanted)
    pages = [page(name, wanted[name], there) for name in wanted if name not in boxes.failures]
    if as_json:
        failed = [
            {"name": name, "error": {"cause": error.cause, "remedy": error.remedy}}
            for name, error in boxes.failures.items()
        ]
        reach.print_json({"schema": SCHEMA, "boxes": [*pages, *failed]})
    else:
        for item in pages:
            show(item, reach.shown(fleet))
    refused = any(item["refused"] for item in pages)
    changed = any(item["changes"] for item in pages)
    reach.finish(boxes, reach.shown(fleet), REFUSED if refused else WOULD_CHANGE if changed else DONE)


def planned(fleet: Fleet, boxes: Any) -> dict[str, Pending]:
    """What each box needs; one that cannot be told counts as failed. Raises ConfigError."""
    found = {}
    for name, facts in boxes.facts.items():
        try:
            found[name] = pending(fleet, name, facts)
        except BoxError as error:
            boxes.failures[name] = error
    waves.agreed(item.plan for item in found.values())
    return found


def releases(boxes: Any, wanted: Mapping[str, Pending]) -> dict[tuple[str, str], dict[str, Any]]:
    """What boxes have of the instances that would change, by box and instance: all boxes at once, one instance each."""
    left = {name: [change.instance.name for change in item.changes.instances] for name, item in wanted.items()}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    while specs := {name: {"instance": names[0]} for name, names in left.items() if names}:
        for name, answer in boxes.call("releases", specs).items():
            found[name, specs[name]["instance"]] = answer
        left = {name: names[1:] for name, names in left.items()}
    return found


def page(name: str, wanted: Pending, there: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    """One box, as --json prints it."""
    return {
        "name": name,
        "error": None,
        "refused": [
            {"code": each.code, "message": each.message, "remedy": each.remedy, "name": each.name}
            for each in wanted.refused
        ],
        "drift": [
            {"code": each.code, "message": each.message, "remedy": each.remedy, "name": each.name}
            for each in wanted.of_others
        ],
        "changes": wanted.changes.lines(),
        "held": {
            instance: found["held"]
            for instance, found in (wanted.plan.facts.get("instances") or {}).items()
            if found.get("held")
        },
        "instances": [
            _instance(change, there.get((name, change.instance.name), {})) for change in wanted.changes.instances
        ],
    }


def _instance(change: InstanceChange, there: Mapping[str, Any]) -> dict[str, Any]:
    name = change.instance.name
    files = difference.of_release(there, change.release.files, f"{UNITS}/gpufleet-{name}.service")
    return {
        "name": name,
        "from": there.get("current"),
        "to": change.release.digest,
        "reasons": [reason.text for reason in change.reasons],
        "files": [{"path": each.path, "kind": each.kind, "diff": "\n".join(each.lines)} for each in files],
    }


def show(item: Mapping[str, Any], inventory: str) -> None:
    """Print one box: its lines, then the diffs of its files."""
    for name, held in item["held"].items():
        click.echo(terminal.plain(held_line(f"{item['name']}/{name}", held, inventory)))
    for each in item["drift"]:
        line = f"{item['name']}: drift: {each['message']} [{each['code']} {each['name']}]."
        click.secho(terminal.plain(f"{line} A deploy leaves it. Remedy: {each['remedy']}."), fg="yellow")
    if not item["changes"] and not item["refused"]:
        click.echo(f"{item['name']}: nothing to change")
        return
    for each in item["refused"]:
        line = f"{item['name']}: a deploy is refused: {each['message']} [{each['code']} {each['name']}]."
        click.secho(terminal.plain(f"{line} Remedy: {each['remedy']}."), fg="red")
    for line in item["changes"]:
        click.secho(terminal.plain(f"{item['name']}: {line}"), bold=True)
    for instance in item["instances"]:
        for file in instance["files"]:
            click.echo(f"{item['name']}/{instance['name']}: {file['path']} {file['kind']}")
            for line in file["diff"].splitlines():
                click.secho(terminal.plain(line), fg=COLOURS.get(line[:1]))
    sys.stdout.flush()
