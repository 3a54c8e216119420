"""`gpufleet init`: an owner's folder, which a fleet is kept in."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpufleet import address, terminal
from gpufleet.commands.folder import NOWHERE, Wrong, configuration, is_nowhere
from gpufleet.errors import BOX_FAILED, ConfigError
from gpufleet.terminal import told

if TYPE_CHECKING:
    from gpufleet.checkpoint.making import Made

INVENTORY = "inventory/home.py"


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--box", "boxes", multiple=True, metavar="NAME=ADDRESS", help="A box; may be given several times.")
@click.option("--serve", multiple=True, metavar="MODEL", help="What these boxes serve; may be given several times.")
@click.option("--user", metavar="USER", help="Who logs in on them; default: as ssh has it.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of all boxes; a.b=c goes in.")
def init(
    folder: Path, boxes: tuple[str, ...], serve: tuple[str, ...], user: str | None, settings: tuple[str, ...]
) -> None:
    """Make the folder DIR that a fleet is kept in: deploy.py, config.py, inventory, group_data and files.

    It asks nothing, and connects to no box. The folder may be there; a file of it that is there already is not written
    over, and then nothing is. ADDRESS is as ssh has it, with USER@ before and :PORT after it where it needs them; NAME
    alone is a box of your ssh config. MODEL is the name of a page that comes along, or a repository of the hub
    (owner/name) or another source of `gpufleet models add`, whose page is then written, too. What is left out can be
    written into inventory/home.py later.

    Exit codes: 0; 1 a model's page could not be had; 2 the call is wrong, or a file is there already. After 1 and 2
    nothing was written.
    """
    from gpufleet import folder_files, planning
    from gpufleet.schema import NAME
    from gpufleet.wheelhouse.items import FetchError

    if not boxes and (serve or user is not None):
        raise click.UsageError("--serve and --user are of boxes: give them with --box NAME=ADDRESS")
    refuse_what_is_there(folder, folder_files.files([], {}, {}))
    try:
        with configuration():
            chosen = planning.overrides(settings, ())
            for text in boxes:
                box(text, [], user)  # what is wrong with one is said before a hub is asked
            pages = {model: page(model, chosen, folder) for model in serve if not re.fullmatch(NAME, model)}
            names = list(dict.fromkeys(pages[model].name if model in pages else model for model in serve))
            listed = [box(text, names, user) for text in boxes]
            files = folder_files.files(listed, chosen, {made.name: made.text for made in pages.values()})
            check(files, listed, folder)
    except FetchError as error:
        click.echo(told(f"gpufleet: {error}"), err=True)
        sys.exit(BOX_FAILED)
    terminal.outlive_readers()
    write(folder, files)
    click.echo(f"{folder}: {', '.join(files)}")
    click.echo(next_step(folder, bool(boxes), bool(serve)))


def box(text: str, serve: list[str], user: str | None) -> tuple[str, dict[str, Any]]:
    """A box as an inventory lists it, of NAME, NAME=ADDRESS or NAME=USER@ADDRESS:PORT. Raises ConfigError."""
    name, equals, given = text.partition("=")
    data: dict[str, Any] = {}
    if equals:
        found = address.parse(given)
        if found is None:
            example = "write NAME=ADDRESS, such as turing-1=192.168.1.11"
            raise ConfigError([f"--box {text!r}: {given!r} is no address; {example}"])
        data = found
        if wrong := list(address.problems(data)):
            raise ConfigError(f"--box {text!r}: {problem}" for problem in wrong)
    if user is not None:
        if wrong := list(address.problems({"ssh_user": user})):
            raise ConfigError(f"--user {user!r}: {problem}" for problem in wrong)
        data.setdefault("ssh_user", user)
    if serve:
        data["serve"] = serve
    return name, data


def page(source: str, settings: Mapping[str, Any], folder: Path) -> Made:
    """The page of a checkpoint that no page is of yet. Raises ConfigError, FetchError.

    + settings: those of all boxes, whose mirror of the hub is asked; + folder: the fleet's, which may have its recipe
    """
    from gpufleet import paths
    from gpufleet.checkpoint import making
    from gpufleet.settings import Mirrors
    from gpufleet.wheelhouse import hub

    at = hub.endpoint(Mirrors(**settings.get("mirrors", {})))
    known = reversed(paths.model_folders(folder))
    made = making.of_source(source, at, known, lambda line: click.echo(told(line), err=True))
    for note in made.found.notes:
        click.echo(told(f"note: {note}"), err=True)
    return made


def check(files: Mapping[str, str], boxes: Sequence[tuple[str, dict[str, Any]]], folder: Path) -> None:
    """Raises ConfigError for what a deploy of this folder would find wrong in it, before it is there."""
    from gpufleet import inventory, paths

    with tempfile.TemporaryDirectory() as aside:
        write(Path(aside), files)
        if boxes:
            models = folder / "files" / "models"
            inventory.load(boxes, Path(aside).resolve() / INVENTORY, [models] if paths.is_folder(models) else [])


def refuse_what_is_there(folder: Path, names: Iterable[str]) -> None:
    """Raises Wrong where one of these files would be written over."""
    if folder.exists() and not folder.is_dir():
        raise Wrong(f"{folder} is a file: name a folder, which need not be there yet")
    there = [name for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise Wrong(f"{folder} has {', '.join(there)} already, and nothing was written: name another folder")


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write all of the files, or none. Raises Wrong."""
    refuse_what_is_there(folder, files)
    made: list[Path] = []
    try:
        for name, text in files.items():
            _into(folder / name, text, made)
    except BaseException as error:  # Ctrl-C too
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            if not folder.is_absolute() and is_nowhere():
                raise Wrong(NOWHERE) from error
            where = error.filename or folder
            raise Wrong(
                f"{where} cannot be written: {error.strerror}. Nothing was written: name another folder"
            ) from error
        raise


def _into(path: Path, text: str, made: list[Path]) -> None:
    """Write a file that is not there, and the folders above it. + made: what was made is added"""
    missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir()
        made.append(parent)
    with path.open("x", encoding="utf-8") as stream:
        made.append(path)
        stream.write(text)


def next_step(folder: Path, boxes: bool, serve: bool) -> str:
    """What to do now, in one line."""
    inventory = shlex.quote(str(folder / INVENTORY))
    if boxes and serve:
        return f"next: gpufleet deploy {inventory}    (looks first, shows what it would do, and asks)"
    what = "what each box serves" if boxes else "your boxes"
    return f"next: write {what} into {inventory}, then: gpufleet deploy {inventory}"
