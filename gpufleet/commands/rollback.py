"""`gpufleet rollback`: an instance back to a release that has served before, and held there."""

from __future__ import annotations

from pathlib import Path

import click

from gpufleet import target, terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import Wrong, configuration

INTERRUPTED = "gpufleet: interrupted; the rollback goes on on the box, and `gpufleet status` shows it"


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("what", metavar="BOX[/INSTANCE]")
@click.option("--to", metavar="DIGEST", help="This release, or the beginning of it. Default: the one before.")
def rollback(inventory: Path, what: str, to: str | None) -> None:
    """Switch an instance of INVENTORY back to the last release before this one that passed its gate, or to DIGEST.

    Nothing is downloaded or built: it costs the restart. Of a box with several instances each is done, one at a time.
    The instance is held then: deploys leave it as it is until `gpufleet unhold`. If the older release does not pass
    its gate either, the box puts the present one back, and that is a failure. It goes on when this program ends;
    the same call again follows it. Meanwhile it holds the fleet's lock, so that no deploy comes between.

    Exit codes: 0 done; 1 it failed; 2 the call or the configuration is wrong; 4 another run holds the fleet's lock;
    130 interrupted, the rollback goes on.
    """
    terminal.outlive_readers()
    with configuration():
        errand = reach.errand(inventory, what, interrupted=INTERRUPTED)
        names, digest = errand.names, None
        if to:
            name, digest = target.release_of(errand.facts, target.Target(errand.box), names, to)
            names = [name]
        else:
            refuse_twice(errand)

    def one(name: str) -> bool:
        who = f"{errand.box}/{name}"
        reach.say(f"{who}: from {errand.known(name).get('current') or 'no release'} to {digest or 'the one before'}")
        answer = errand.call("rollback", {"instance": name, "to": digest, "by": reach.whoami()}, job=True)
        if answer is None:
            return False
        back = answer.get("digest") or digest
        reach.say(f"{who}: {back or 'the release before'} serves again ({reach.took(answer)})")
        for line in reach.warnings(who, answer):
            reach.say(line)
        reach.say(f"{who}: held: deploys leave it as it is, until `gpufleet unhold {errand.inventory} {who}`")
        return True

    with errand.locked("rollback"):
        errand.each(names, one)


def refuse_twice(errand: reach.Errand) -> None:
    """A call that is made again to be sure must not go back once more. Raises Wrong."""
    for name in errand.names:
        known = errand.known(name)
        last, current = (known.get("history") or [{}])[-1], known.get("current")
        if known.get("held") and last.get("outcome") == "rolled back" and last.get("digest") == current:
            others = ", ".join(digest for digest in known.get("releases") or [] if digest != current)
            raise Wrong(
                f"{errand.box}/{name} was rolled back to {current} at {last.get('at')} already, and is held; to go to "
                f"another release give --to: it keeps {others or 'none'}"
            )
