"""`gpufleet unlock`: who holds the fleet's lock, and breaks it after a question."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpufleet import terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.status_view import locked


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Break it without asking.")
def unlock(inventory: Path, yes: bool) -> None:
    """Show who holds the lock of INVENTORY's boxes and, after a question, break it on all of them.

    Do this when the run that took it is dead and you do not want to wait until it runs out. A run that is alive loses
    its lock by this, and then two may change the fleet at once.

    Exit codes: 0 done, or nothing is locked, or not confirmed; 1 a box failed; 2 the call or the configuration is
    wrong, or there is no terminal to ask in.
    """
    terminal.outlive_readers()
    with configuration():
        fleet = reach.fleet_of(inventory)
        boxes = reach.connect(fleet, list(fleet.boxes))
    # also those that have run out: they go, too
    held = {name: facts["lock"] for name, facts in boxes.facts.items() if facts.get("lock")}
    holders: dict[str, list[str]] = {}
    for name, lock in held.items():
        holders.setdefault(locked(lock), []).append(name)
    for words, names in holders.items():
        reach.say(f"{', '.join(names)}: {words}")
    if not held:
        click.echo("nothing is locked" if not boxes.failures else "nothing is locked on the boxes that answer")
    elif agreed(yes, len(held)):
        done = boxes.call("lock", {name: {"action": "break", "id": lock.get("id")} for name, lock in held.items()})
        if done:
            reach.say(f"unlocked: {', '.join(done)}")
    reach.finish(boxes, reach.shown(fleet))


def agreed(yes: bool, count: int) -> bool:
    """Whether it is to be broken. Raises Wrong when nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Wrong("nothing was unlocked: there is no terminal to ask in; add --yes")
    return click.confirm(f"Break the lock on {count} box{'es' if count > 1 else ''}?", default=False)
