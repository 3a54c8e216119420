"""`gpufleet restart`: the service of an instance anew, and gated."""

from __future__ import annotations

from pathlib import Path

import click

from gpufleet import terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration

INTERRUPTED = "gpufleet: interrupted; the restart goes on on the box, and `gpufleet status` shows it"


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
def restart(inventory: Path, what: str) -> None:
    """Stop and start an instance of INVENTORY on the release that it has, and prove by its gate that it serves.

    Of a box with several instances each is done, one at a time. It goes on when this program ends; the same call again
    follows it. Meanwhile it holds the fleet's lock, so that no deploy comes between.

    Exit codes: 0 done; 1 it failed, or does not pass its gate; 2 the call or the configuration is wrong; 4 another run
    holds the fleet's lock; 130 interrupted, the restart goes on.
    """
    terminal.outlive_readers()
    with configuration():
        errand = reach.errand(inventory, what, interrupted=INTERRUPTED)

    def one(name: str) -> bool:
        who = f"{errand.box}/{name}"
        answer = errand.call("restart", {"instance": name, "by": reach.whoami()}, job=True)
        if answer is None:
            return False
        reach.say(f"{who}: serves again ({reach.took(answer)})")
        for line in reach.warnings(who, answer):
            reach.say(line)
        return True

    with errand.locked("restart"):
        errand.each(errand.names, one)
