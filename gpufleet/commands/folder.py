"""What commands on a fleet's folder share: going there, running its inventory, ending with 2 when it is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gpufleet import paths
from gpufleet.errors import WRONG, ConfigError
from gpufleet.terminal import told

# Variables with folders, which the caller gives as seen from where the command is called.
FOLDERS = ("GPUFLEET_STORE", "XDG_CACHE_HOME")


class Wrong(click.ClickException):
    """The call or the configuration is wrong; nothing was touched."""

    exit_code = WRONG

    def show(self, file: object = None) -> None:
        for line in self.message.split("\n"):
            click.echo(f"gpufleet: {told(line)}", err=True)


NOWHERE = "the working directory is not there any more: go to one that is, and call it again"


def is_nowhere() -> bool:
    """Whether the working directory was deleted, so that no path in it means anything."""
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def enter(inventory: Path) -> Path:
    """Go to the fleet's folder, from wherever the command is called; the inventory's path as seen from there."""
    if inventory.is_dir():
        found = paths.inventories(inventory)
        what = f"give the inventory in it, {' or '.join(map(str, found))}" if found else "give the path of an inventory"
        raise Wrong(f"{inventory} is a folder: {what}")
    if not inventory.is_file() and not inventory.is_absolute() and is_nowhere():
        raise Wrong(NOWHERE)
    if not inventory.is_file():
        raise Wrong(f"there is no inventory {inventory}: give the path of a file such as inventory/home.py")
    path = inventory.resolve()
    root = paths.folder_of(path)
    for name in FOLDERS:  # also for the pyinfra that takes this process's place
        if given := os.environ.get(name):
            os.environ[name] = str(Path(given).absolute())
    paths.given(path, inventory)
    os.chdir(root)
    return path.relative_to(root)


@contextmanager
def configuration() -> Iterator[None]:
    """What is wrong with the configuration ends the command with 2, a line each."""
    try:
        yield
    except ConfigError as error:
        raise Wrong("\n".join(told(problem) for problem in error.problems)) from error
