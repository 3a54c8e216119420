"""The `gpufleet` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gpufleet import __version__
from gpufleet.errors import WRONG


class Wrong(click.ClickException):
    """The call is wrong; nothing was touched."""

    exit_code = WRONG


@click.group()
@click.version_option(__version__, prog_name="gpufleet")
def main() -> None:
    """From bare Ubuntu/Debian boxes with older NVIDIA GPUs to serving language models."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def deploy(inventory: Path, options: tuple[str, ...]) -> None:
    """Bring the boxes of INVENTORY to what they should be; OPTIONS are pyinfra's (-y, --dry, --limit BOX, …).

    Runs deploy.py of the inventory's folder, from wherever it is called.

    Exit codes: 0 done or nothing to do; 1 a box failed; 2 the call or the configuration is wrong, nothing was touched;
    3 a rule refused a box, nothing was touched on it; 5 --dry found something to change; 130 interrupted.
    """
    if not inventory.is_file():
        raise Wrong(f"there is no inventory {inventory}: give the path of a file such as inventory/home.py")
    path = inventory.resolve()
    root = path.parent.parent if path.parent.name == "inventory" else path.parent
    missing = [name for name in ("deploy.py", "config.py") if not (root / name).is_file()]
    if missing:
        raise Wrong(f"{root} has no {' and no '.join(missing)}: copy them from the gpufleet repository")
    os.chdir(root)
    arguments = [*options, str(path.relative_to(root)), "deploy.py"]
    # In place of this process, so that signals and the exit code are pyinfra's own, which config.py sees to.
    os.execv(sys.executable, [sys.executable, "-c", "from pyinfra_cli.main import main; main()", *arguments])  # noqa: S606
