"""`gpufleet logs`: what the engine of an instance wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.terminal import PIPE_CLOSED


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
@click.option("-n", "--lines", type=click.IntRange(0, 100_000), default=100, show_default=True, help="The last lines.")
@click.option("--follow", is_flag=True, help="Go on with each line that comes, until Ctrl-C.")
def logs(inventory: Path, what: str, lines: int, follow: bool) -> None:
    """Show the log of an instance of INVENTORY, from the box's journal.

    Times are UTC. What looks like a secret is hidden. Of a box with several instances all are shown; with --follow
    each line names its own.

    Exit codes: 0 done; 1 the box failed; 2 the call or the configuration is wrong; 130 ended by Ctrl-C.
    """
    with configuration():
        errand = reach.errand(inventory, what, interrupted="")
    if follow:
        spec = {"instances": errand.names, "lines": lines}
        errand.boxes.call("follow", {errand.box: spec}, say=lambda _, line: shown(line))
    else:
        for name in errand.names:
            answer = errand.call("journal", {"lines": 0, "instance": name, "log": lines})
            if answer is None:
                break
            if len(errand.names) > 1:
                reach.say(f"{errand.box}/{name}:")
            for line in answer["log"]:
                reach.say(line)
    reach.finish(errand.boxes, errand.inventory)


def shown(line: str) -> None:
    """A line as it comes; the end when nobody reads any more, which no other thread can be asked for."""
    try:
        reach.say(line)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(PIPE_CLOSED)
