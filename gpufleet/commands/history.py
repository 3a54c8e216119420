"""`gpufleet history`: what happened on boxes, from their own journals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gpufleet import history as events
from gpufleet import target, terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.screen import screen

STEPS_OF_ONE = 12  # so many lines of steps one activation may have


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="[BOX[/INSTANCE]|GROUP]", required=False)
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=20, show_default=True, help="The last events.")
@click.option("--all", "steps", is_flag=True, help="With each step of each activation.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def history(inventory: Path, what: str | None, lines: int, steps: bool, as_json: bool) -> None:
    """Show what happened on the boxes of INVENTORY, or on one box, group or instance.

    Times are UTC, by each box's clock.

    Exit codes: 0 done; 1 a box could not be read, the others were; 2 the call or the configuration is wrong.
    """
    with configuration():
        fleet = reach.fleet_of(inventory)
        instance = None
        if what and "/" in what:
            meant = target.parse(fleet, what)
            names, instance = [meant.box], meant.instance
        else:
            names = fleet.select([what] if what else [], ())
        boxes = reach.connect(fleet, names)
        if instance and names[0] in boxes.facts:
            target.instances_of(boxes.facts[names[0]], meant)
    asked = {"lines": lines if steps else lines * STEPS_OF_ONE, "instance": instance, "log": 0}
    found = events.merged(boxes.call("journal", dict.fromkeys(boxes.facts, asked)), steps, lines)
    if as_json:
        reach.print_json(events.document(found))
    elif found:
        show(found)
    elif not boxes.failures:
        click.echo("nothing has happened there yet")
    reach.finish(boxes, reach.shown(fleet))


def show(found: list[dict[str, Any]]) -> None:
    """Print a line for each event."""
    console = screen()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in events.COLUMNS:
        table.add_column(title, overflow="fold")
    for event in found:
        terminal.add_row(table, *events.row(event))
    console.print(table)
