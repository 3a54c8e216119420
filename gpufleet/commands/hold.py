"""`gpufleet hold` and `gpufleet unhold`: whether deploys leave an instance as it is."""

from __future__ import annotations

from pathlib import Path

import click

from gpufleet import terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
def hold(inventory: Path, what: str) -> None:
    """Have deploys leave an instance of INVENTORY on the release that it has, until `gpufleet unhold`.

    Nothing is restarted. `gpufleet rollback` does this by itself.

    Exit codes: 0 done; 1 it failed; 2 the call or the configuration is wrong.
    """
    terminal.outlive_readers()
    with configuration():
        errand = reach.errand(inventory, what)

    def one(name: str) -> bool:
        who, known = f"{errand.box}/{name}", errand.known(name)
        if held := known.get("held"):
            by = f" by {held['by']}" if held.get("by") else ""
            reach.say(f"{who}: is held at {held.get('digest')} since {held.get('since')}{by} already")
            return True
        if errand.call("hold", {"instance": name, "by": reach.whoami()}) is None:
            return False
        reach.say(f"{who}: held at {known.get('current')}, until `gpufleet unhold {errand.inventory} {who}`")
        return True

    errand.each(errand.names, one)


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
def unhold(inventory: Path, what: str) -> None:
    """Let deploys change an instance of INVENTORY again; nothing is restarted before the next one.

    Exit codes: 0 done; 1 it failed; 2 the call or the configuration is wrong.
    """
    terminal.outlive_readers()
    with configuration():
        errand = reach.errand(inventory, what)

    def one(name: str) -> bool:
        who = f"{errand.box}/{name}"
        if not errand.known(name).get("held"):
            reach.say(f"{who}: is not held")
            return True
        if errand.call("unhold", {"instance": name, "by": reach.whoami()}) is None:
            return False
        reach.say(f"{who}: no longer held; the next deploy brings it to what the plan says")
        return True

    errand.each(errand.names, one)
