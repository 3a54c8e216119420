"""`gpufleet patches check`: whether the series of stacks apply, to what they were made for or to another version."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpufleet import terminal
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.errors import BOX_FAILED

if TYPE_CHECKING:
    from gpufleet.stacks import Stack
    from gpufleet.wheelhouse.checking import Checked, Places


@click.group()
def patches() -> None:
    """Look after the patches of stacks."""


@patches.command()
@click.argument("stack", required=False)
@click.option("--against", metavar="VERSION|WHEEL", help="Another version of the engine, or the path of its wheel.")
@click.option(
    "--find-links",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder that may have the wheels; may be given several times.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, such as mirrors.git=URL.")
def check(stack: str | None, against: str | None, folders: tuple[Path, ...], settings: tuple[str, ...]) -> None:
    """Say of every hunk of STACK's patches (of all stacks without one) whether it applies.

    They are tried on the genuine files: of the wheels and source archives that the pages name by sha256, from
    --find-links, from the controller's store, or from its package index; and of git repositories at their commits;
    with fetch.offline nothing is asked for outside. What is fetched stays in the store. With --against on
    another version of the engine, from the package index or the path of a wheel: what fails there has to be made anew.

    Exit codes: 0 all apply; 1 a hunk fails, or something could not be had; 2 the call or the configuration is wrong.
    """
    from gpufleet import catalogue, paths, planning
    from gpufleet.settings import Settings
    from gpufleet.stacks import Stack
    from gpufleet.wheelhouse.checking import Places, own
    from gpufleet.wheelhouse.store import Store, default_root

    with configuration():
        known = catalogue.load(Stack, "stack", paths.stack_folders(Path.cwd()))
        wanted = [known.find(stack, "STACK")] if stack else list(known.values())
        given = Settings.model_validate(planning.overrides(settings, []))
    places = Places(Store(default_root()), given.mirrors, folders, given.fetch.offline, _say)
    if against is None:
        found = own(wanted, places)
    elif against.endswith(".whl"):
        found = _on_a_wheel(wanted, Path(against), places)
    elif stack:
        _is_version(against)
        found = _on_a_version(wanted[0], against, places)
    else:
        raise click.UsageError(f"--against {against}: say of which STACK")
    sys.exit(_shown(found))


def _is_version(text: str) -> None:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        raise Wrong(f"--against {text!r} is no version, such as 0.28.0, and no path of a wheel") from None


def _say(text: str) -> None:
    click.echo(terminal.plain(text), err=True)


def _on_a_wheel(stacks: Iterable[Stack], path: Path, places: Places) -> Iterator[Checked]:
    from packaging.utils import InvalidWheelFilename

    from gpufleet.wheelhouse.checking import against, is_of, patched

    if not path.is_file():
        raise Wrong(f"--against {path}: there is no such file; give the path of a wheel, or a version")
    entries = [(stack, entry) for stack in stacks for entry in patched(stack)]
    try:
        fitting = [(stack, entry) for stack, entry in entries if is_of(path, entry)]
    except InvalidWheelFilename as error:
        raise Wrong(f"--against {path}: {error}; keep the name that it was published with") from None
    if not fitting:
        names = ", ".join(sorted({entry.name for _, entry in entries})) or "nothing"
        raise Wrong(f"--against {path}: no patches for that distribution; what is patched: {names}")
    return (against(stack, entry, places, lambda: path) for stack, entry in fitting)


def _on_a_version(stack: Stack, version: str, places: Places) -> Iterator[Checked]:
    from gpufleet.wheelhouse.checking import against, engine_wheel

    entry = engine_wheel(stack)
    if entry is None:
        raise Wrong(f"--against {version}: {stack.name} has no patched wheel")
    yield against(stack, entry, places, lambda: places.version(stack, entry, version))


def _shown(found: Iterable[Checked]) -> int:
    """Print what was found as it comes; the exit code."""
    failed = total = 0
    for item in found:
        total += 1
        failed += item.failed
        for line in item.lines():
            click.echo(terminal.plain(line))
    click.echo(f"{failed} of {total} series fail" if failed else f"all {total} series apply" if total else "no patches")
    return BOX_FAILED if failed else 0
