"""`gpufleet deploy`: pyinfra with deploy.py, in the fleet's folder."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from gpufleet.commands.folder import Wrong, enter
from gpufleet.commands.instead import Instead

# The options of `pyinfra` (3.10): importing it to ask takes longer than all that is done here.
FLAGS = {
    "-v", "-y", "--yes", "--dry", "--diff", "--sudo", "--same-sudo-password", "--use-sudo-password",
    "--use-sudo-login", "--dzdo", "--no-wait", "--serial", "--ssh-password-prompt", "--support", "--debug",
    "--debug-all", "--debug-facts", "--debug-operations", "--json", "--version",
}  # fmt: skip
NUMBERS = {
    "--fail-percent", "--parallel", "--retry", "--retry-delay", "--ssh-port", "--port",
}  # fmt: skip
TEXTS = {
    "--limit", "--exclude", "--data", "--group-data", "--config", "--chdir", "--sudo-user", "--su-user",
    "--dzdo-user", "--shell-executable", "--ssh-user", "--user", "--ssh-key", "--key", "--ssh-key-password",
    "--key-password", "--ssh-password", "--password",
}  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="INVENTORY [OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
def deploy(words: tuple[str, ...]) -> None:
    """Bring the boxes of INVENTORY to what they should be; OPTIONS are pyinfra's (-y, --dry, --limit BOX, …).

    Runs deploy.py of the inventory's folder, from wherever it is called. OPTIONS may stand before INVENTORY, too.

    Exit codes: 0 done or nothing to do; 1 a box failed or was left out; 2 the call or the configuration is wrong,
    nothing was touched; 3 a rule refused the run, nothing was touched; 4 another deploy has the fleet's lock; 5 --dry
    found something to change; 130 interrupted.
    """
    options, inventories = apart(words)
    if not inventories:
        raise click.UsageError("Missing argument 'INVENTORY': the path of a file such as inventory/home.py")
    if more := inventories[1:]:
        raise Wrong(
            f"a run has one inventory and its folder's deploy.py, not {', '.join(more)} besides: run each by itself; "
            "boxes are named by --limit BOX"
        )
    path = enter(Path(inventories[0]))
    missing = [name for name in ("deploy.py", "config.py") if not Path(name).is_file()]
    if missing:
        raise Wrong(f"{Path.cwd()} has no {' and no '.join(missing)}: `gpufleet init DIR` makes a folder that has them")
    raise Instead([*options, str(path), "deploy.py"])


def apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options with their values, what is none), in their order. Raises UsageError where pyinfra would."""
    options: list[str] = []
    others: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        name, given, value = word.partition("=")
        if name in NUMBERS | TEXTS:
            options.append(word)
            if not given:
                following = next(left, None)
                if following is None:
                    raise click.UsageError(f"Option {name!r} requires an argument.")
                options.append(value := following)
            if name in NUMBERS and not value.removeprefix("-").isdecimal():
                raise click.UsageError(f"Option {name!r}: {value!r} is not a number.")
        elif word in FLAGS or (not word.startswith("--") and all(f"-{letter}" in FLAGS for letter in word[1:])):
            options.append(word)
        elif name in FLAGS:
            raise click.UsageError(f"Option {name!r} does not take a value.")
        else:
            near = get_close_matches(name, sorted(FLAGS | NUMBERS | TEXTS), n=1) if len(name) > 2 else ["--help"]
            raise click.UsageError(f"No such option {name!r}; did you mean {(near or ['--help'])[0]!r}?")
    return options, others
