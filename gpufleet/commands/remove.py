"""`gpufleet remove`: gpufleet taken off a box, or one instance. `gpufleet forget`: a box is not named any more."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gpufleet import left_behind, removal, target, terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.errors import BOX_FAILED, DONE, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.screen import screen

INTERRUPTED = "gpufleet: interrupted; what was begun is finished on the box; the same call again says how far it is"
EVENTS = 10**9  # of a box's journal: all


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
@click.option("--models", is_flag=True, help="Remove models, too; of linked ones only the link.")
@click.option("--packages", is_flag=True, help="Remove what was installed by apt, too, with the CUDA repository.")
@click.option("--address", metavar="[USER@]HOST[:PORT]", help="Where a box is that is in the inventory no more.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
def remove(inventory: Path, what: str, models: bool, packages: bool, address: str | None, yes: bool) -> None:
    """Take gpufleet off a box of INVENTORY, or one instance off it, and start what it took the place of.

    Shown first is what goes and what stays. Of a box everything goes that gpufleet put there: units, instances,
    runtimes, the store, its user, its holds, its books (the journal is kept beside the reports); but models and
    packages only when they are asked for. The same call again goes on with one that was cut off. Of an instance its
    unit, releases and caches go; what runtimes and models it leaves, `gpufleet gc` frees.

    The box may be in the inventory no more: its address of the last look is known, or give it.

    Exit codes: 0 done, or nothing is left, or not confirmed; 1 it failed, or the box cannot be reached; 2 the call or
    the configuration is wrong, or there is no terminal to ask in; 4 another run holds the fleet's lock; 130
    interrupted.
    """
    terminal.outlive_readers()
    with configuration():
        fleet = reach.fleet_of(inventory)
        listed = {*fleet.boxes}
        left_behind.taken_in(fleet, what.partition("/")[0], address)
        try:
            meant = target.parse(fleet, what)
        except ConfigError as error:
            raise ConfigError(_or_by_address(fleet, what, problem) for problem in error.problems) from None
        boxes = reach.connect(fleet, [meant.box], interrupted=INTERRUPTED)
        shown, who = reach.shown(fleet), f"{meant.box}/{meant.instance}" if meant.instance else meant.box
        if meant.box in boxes.facts and meant.box not in listed:
            refuse_another(fleet, meant.box, boxes.facts[meant.box], listed, address)
    spec: dict[str, Any] = {"instance": meant.instance, "models": models, "packages": packages}
    if home := removal.models_home(fleet, meant.box, boxes.facts[meant.box]) if meant.box in boxes.facts else None:
        spec["home"] = home
    found = boxes.call("removable", {meant.box: {**spec}}).get(meant.box)
    if found is None:
        reach.finish(boxes, shown, BOX_FAILED)
    show(who, found)
    if not found["goes"] and meant.instance:
        others = f" (it has {', '.join(found['instances'])})" if found["instances"] else ""
        reach.say(f"{who}: nothing of it is left there{others}")
        reach.finish(boxes, shown)
    if found["goes"]:
        if not agreed(yes, who):
            reach.finish(boxes, shown)
        facts = boxes.facts[meant.box]
        errand = reach.Errand(
            boxes, meant.box, facts, [meant.instance or "all"], shown, fleet.inventory, fleet.reports_folder
        )
        with errand.locked("remove"):
            done = carry_out(errand, fleet, spec)
    else:
        done = boxes.call("job", {meant.box: {"verb": "remove", "spec": spec}}).get(meant.box)
    if done is None:
        reach.finish(boxes, shown, BOX_FAILED)
    ended(fleet, meant, found, done, boxes.facts[meant.box], meant.box in listed)
    reach.finish(boxes, shown, BOX_FAILED if done["failed"] else DONE)


def _or_by_address(fleet: Fleet, what: str, problem: str) -> str:
    """What is wrong with BOX[/INSTANCE]; of a name that nobody knows, also how such a box is removed."""
    if what.partition("/")[0] in fleet.boxes or "is a group" in problem:
        return problem
    return f"{problem}. A box that is in the inventory no more: say where it is, --address [USER@]HOST[:PORT]"


def refuse_another(
    fleet: Fleet, box: str, facts: Mapping[str, Any], listed: Collection[str], address: str | None
) -> None:
    """Raises Wrong when it is a machine of the inventory that answers, or, where the box was reached last, another.

    + listed: names of the boxes in the inventory; + address: where the caller says that it is
    """
    machine = facts.get("machine_id")
    for name in sorted(listed) if machine else ():
        known = fleet.facts.get(name) or {}
        if (known.get("machine_id"), known.get("hostname")) == (machine, facts.get("hostname")):  # clones have one id
            raise Wrong(f"what answers there is {name} of the inventory; nothing was removed. To remove that, name it")
    before = (fleet.facts.get(box) or {}).get("machine_id")
    if not address and before and machine and before != machine:
        raise Wrong(f"what answers at {box}'s last address is another machine; nothing was removed. Give --address")


def agreed(yes: bool, who: str) -> bool:
    """Whether it is to be done. Raises Wrong when nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Wrong("nothing was removed: there is no terminal to ask in; add --yes")
    return click.confirm(f"Remove this from {who}?", default=False)


def carry_out(errand: reach.Errand, fleet: Fleet, spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Keep the box's journal, then remove; None when that failed. The lock is gone with the rest."""
    if not spec["instance"]:
        told = errand.call("journal", {"lines": EVENTS, "log": 0, "instance": None})
        if told is None:
            return None
        if told["events"]:  # a call before this one may have kept it
            keep_journal(fleet.reports_folder, errand.box, told["events"])
    done = errand.call("remove", spec, job=True)
    if done is not None and not spec["instance"]:
        errand.boxes.unlock(gone=True)
    return done


def keep_journal(folder: Path, box: str, events: list[Mapping[str, Any]]) -> None:
    """What happened on the box, for its owner's eyes only. Raises OSError."""
    path = folder / f"{box}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.journal.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    reach.say(f"{box}: its journal is kept in {path}")


def show(who: str, found: Mapping[str, Any]) -> None:
    """Print what goes and what stays, and the sum."""
    console = screen()
    for title, items in (("goes", found["goes"]), ("stays", found["stays"])):
        if not items:
            continue
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in (f"{who}: {title}", "size", ""):
            table.add_column(name, overflow="fold", justify="right" if name == "size" else "left")
        for row in removal.rows(items):
            terminal.add_row(table, *row)
        console.print(table)
    if found["goes"]:
        console.print(terminal.plain(removal.summary(who, found)), markup=False)


def ended(
    fleet: Fleet,
    meant: target.Target,
    found: Mapping[str, Any],
    done: Mapping[str, Any],
    facts: Mapping[str, Any],
    listed: bool,
) -> None:
    """Say what was done, and forget the box."""
    who = f"{meant.box}/{meant.instance}" if meant.instance else meant.box
    said = (
        "removed"
        if found["goes"]
        else "nothing of gpufleet is left there" + (" but what stays" if found["stays"] else "")
    )
    for unit in done["started"]:
        reach.say(f"{meant.box}: {unit} runs again, as it was before")
    for line in done["failed"]:
        reach.say(f"{meant.box}: {line}", err=True)
    reach.say(f"{who}: {said}")
    if listed and (line := removal.next_deploy(fleet, meant.box, meant.instance, facts)):
        reach.say(line)
    if not meant.instance:
        left_behind.forget(fleet, meant.box)


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("box")
def forget(inventory: Path, box: str) -> None:
    """Drop what is known of a box that is in INVENTORY no more; the box itself is not touched.

    Exit codes: 0 done; 2 the call or the configuration is wrong.
    """
    with configuration():
        fleet = reach.fleet_of(inventory)
    if box in fleet.boxes:
        raise Wrong(
            f"{box} is in the inventory: take it out there first, then forget it; a box that stays is looked at "
            f"anew by `gpufleet discover {reach.shown(fleet)} --limit {box}`"
        )
    if not left_behind.forget(fleet, box):
        left = ", ".join(left_behind.names(fleet)) or "none"
        raise Wrong(f"nothing is known of {box}; known and not in the inventory: {left}")
    reach.say(f"{box}: forgotten; what is on it stays there")
