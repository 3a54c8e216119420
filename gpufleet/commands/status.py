"""`gpufleet status`: how each instance of a fleet serves, and what is odd about it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gpufleet import left_behind, terminal
from gpufleet import status as states
from gpufleet import status_view as view
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.errors import BOX_FAILED, DONE, BoxError, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.screen import screen


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON; with --watch one line for each look.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(1, 3600), default=5, show_default=True, help="Seconds between two looks."
)
def status(inventory: Path, limit: tuple[str, ...], as_json: bool, watch: bool, every: float) -> None:
    """Show what the boxes of INVENTORY serve right now: release, health, speed, drift, versions, what is under way.

    Each box is looked at as a deploy does it, and each instance is asked for its health and its counters.

    Exit codes: 0 all serve, or are about to; 1 a box cannot be looked at, or an instance does not serve; 2 the call or
    the configuration is wrong; 130 ended by Ctrl-C.
    """
    with configuration():
        fleet = reach.fleet_of(inventory)
        boxes = reach.connect(fleet, fleet.select(limit, ()), packages=True, interrupted="")
    for line in left_behind.lines(fleet) if as_json else ():
        reach.say(line, err=True)
    while True:
        found = asked(fleet, boxes)
        if as_json:
            document = states.document(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), found)
            reach.print_json(document, indent=None if watch else 1)
        else:
            show(found, reach.shown(fleet), left_behind.lines(fleet), clear=watch and sys.stdout.isatty())
        if not watch:
            break
        time.sleep(every)
        boxes.look()
    sys.exit(BOX_FAILED if any(states.is_bad(box) for box in found) else DONE)


def asked(fleet: Fleet, boxes: Any) -> list[dict[str, Any]]:
    """Each box as it is now, in the order of the inventory."""
    serving = boxes.call("health", {name: {} for name in boxes.facts})
    found = {}
    for name, facts in boxes.facts.items():
        if name in serving:
            found[name] = one(fleet, name, facts, serving[name]["instances"])
    found |= {name: states.unreachable(name, error) for name, error in boxes.failures.items()}
    return [found[name] for name in fleet.boxes if name in found]


def one(fleet: Fleet, name: str, facts: Mapping[str, Any], serving: Mapping[str, Any]) -> dict[str, Any]:
    from gpufleet.pending import pending

    try:
        return states.of_box(name, facts, serving, pending(fleet, name, facts))
    except ConfigError as error:
        return states.of_box(name, facts, serving, None, "; ".join(error.problems))
    except BoxError as error:
        return states.of_box(name, facts, serving, None, error.cause)


def show(found: list[dict[str, Any]], inventory: str, left: Iterable[str], clear: bool) -> None:
    """Print a table, then a line for each thing to be known besides.

    + left: of boxes that are in the inventory no more, a line each
    """
    console = screen()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in view.COLUMNS:
        table.add_column(title, overflow="fold")
    for box in found:
        for row in view.rows(box):
            terminal.add_row(table, *row)
    if clear:
        console.clear()
    console.print(table)
    lines = [each for box in found for each in view.notes(box, inventory)]
    lines += [(line, "note") for line in left]
    if lines:
        console.print()
    for line, style in lines:
        console.print(terminal.plain(line), markup=False, style=view.STYLES[style])
