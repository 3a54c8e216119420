"""`gpufleet plan`: what would be served on each box and why, from facts that are kept or from a topology scenario."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from gpufleet import terminal
from gpufleet.commands.folder import configuration, enter
from gpufleet.errors import REFUSED


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path), required=False)
@click.option("--topology", type=click.Path(path_type=Path), help="A scenario in place of an inventory.")
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Serve this model, in place of `serve`.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, the strongest; a.b=c goes in.")
@click.option("--explain", multiple=True, metavar="KEY", help="Say of a flag or variable who gave it, over what.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Draw GPUs, links and instances of a box.")
def plan(
    inventory: Path | None,
    topology: Path | None,
    limit: tuple[str, ...],
    models: tuple[str, ...],
    settings: tuple[str, ...],
    explain: tuple[str, ...],
    as_json: bool,
    svg: Path | None,
) -> None:
    """Show what the boxes of INVENTORY would serve, how, and what the rules say; nothing is connected to.

    It works from the facts that earlier looks kept (`gpufleet discover` makes new ones), or with --topology from a
    scenario, for which no inventory is needed.

    Exit codes: 0; 2 the call or the configuration is wrong; 3 a rule refuses a box.
    """
    from gpufleet import left_behind, planning, scenario, tables
    from gpufleet.document import document
    from gpufleet.explain import explain as explained
    from gpufleet.inventory import current

    with configuration():
        if inventory is None and topology is None:
            raise click.UsageError("give an inventory, such as inventory/home.py, or --topology FILE")
        if inventory is not None and topology is not None:
            raise click.UsageError("give an inventory or --topology FILE, not both")
        if topology is not None and limit:
            raise click.UsageError("--limit is for an inventory: a scenario is one box")
        if explain and as_json:
            raise click.UsageError("--explain prints lines: leave out --json, whose `because` has the sources")
        overrides = planning.overrides(settings, models)
        svg = svg.absolute() if svg else None
        if topology is not None:
            page = scenario.page(topology)
            found = planning.of_topology(page, str(topology), overrides)
            for line in scenario.unknown_keys(page):
                click.echo(f"gpufleet: {topology}: {line}", err=True)
        else:
            assert inventory is not None
            found = planning.of_inventory(enter(inventory), overrides, limit)
            for line in left_behind.lines(current()):
                click.echo(terminal.plain(f"gpufleet: {line}"), err=True)
        if svg is not None:
            planning.draw(found, svg)
        if explain:
            _print(line for key in explain for line in explained([item.plan for item in found], key))
        elif as_json:
            click.echo(json.dumps(document(found), indent=1))
        else:
            tables.show(found)
    sys.exit(REFUSED if any(item.refused for item in found) else 0)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(terminal.plain(line))
