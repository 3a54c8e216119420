"""`gpufleet gc`: what lies on boxes that nothing uses, and frees it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gpufleet import garbage, terminal
from gpufleet.commands.folder import configuration, enter
from gpufleet.errors import BOX_FAILED
from gpufleet.screen import screen


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--models", is_flag=True, help="Free models that no release names, too; else they are only listed.")
@click.option("--yes", is_flag=True, help="Free it without asking.")
def gc(inventory: Path, limit: tuple[str, ...], models: bool, yes: bool) -> None:
    """Show what lies on the boxes of INVENTORY that nothing uses, with its size, and free it after a question.

    Kept is what the release of each instance names that is current, the one that last passed its gate and the one
    that a rollback goes to (else the newest of the others): runtimes, models, and the files these runtimes were
    made of. Without a terminal and without --yes it is only shown.

    Exit codes: 0 done, or nothing to free, or not confirmed; 1 a box failed, the others were done; 2 the call or the
    configuration is wrong; 130 interrupted.
    """
    from gpufleet.inventory import from_file
    from operations.errands import Boxes  # the only way to a box; it brings pyinfra and paramiko, so only here

    terminal.outlive_readers()
    with configuration():
        fleet = from_file(enter(inventory))
        boxes = Boxes(fleet, fleet.select(limit, ()))
        found = boxes.call("garbage", {name: {} for name in boxes.hosts})
    show(found, models)
    specs = {
        name: {"paths": [item["path"] for item in items], "models": models}
        for name, answer in found.items()
        if (items := garbage.going(answer["items"], models))
    }
    if specs and agreed(yes, {name: found[name] for name in specs}, models):
        for name, done in boxes.call("sweep", specs).items():
            freed, free = garbage.human(done["bytes"]), garbage.human(done["free"])
            click.echo(terminal.plain(f"{name}: freed {freed}; {free} are free"))
    for error in boxes.failures.values():
        click.echo(terminal.plain(str(error)), err=True)
    sys.exit(BOX_FAILED if boxes.failures else 0)


def agreed(yes: bool, found: Mapping[str, Mapping[str, Any]], models: bool) -> bool:
    """Whether it is to be freed: by --yes, or by the answer to a question, which only a terminal is asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        click.echo("gpufleet: nothing was freed: there is no terminal to ask in; add --yes", err=True)
        return False
    freed = sum(garbage.total(garbage.going(answer["items"], models)) for answer in found.values())
    who = f"{len(found)} boxes" if len(found) > 1 else next(iter(found))
    return click.confirm(f"Free {garbage.human(freed)} on {who}?", default=False)


def show(found: Mapping[str, Mapping[str, Any]], models: bool) -> None:
    """Print a table of each box, then its sum."""
    console = screen()
    for name, answer in found.items():
        rows = garbage.rows(answer["items"])
        if rows:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for title in (name, "what", "size", "why"):
                table.add_column(title, overflow="fold", justify="right" if title == "size" else "left")
            for row in rows:
                why = row.why if models or row.kind != "model" else f"{row.why}; stays without --models"
                terminal.add_row(table, row.kind, row.name, garbage.human(row.size), why)
            console.print(table)
        console.print(terminal.plain(f"{name}: {garbage.summary(answer, models)}"), markup=False)
