"""`gpufleet init`: an owner's folder, which a fleet is kept in."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gpufleet.commands.folder import Wrong, configuration
from gpufleet.errors import ConfigError

INVENTORY = "inventory/home.py"
USER = re.compile(r"^[^\s:/-][^\s:/]*$")
# HOST, HOST:PORT, [ADDRESS]:PORT, or an IPv6 address as it is.
PLACE = re.compile(
    r"^(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))(?::(?P<port>\d{1,5}))?$"
    r"|^(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*)$"
)


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

    It asks nothing and connects to nothing. The folder may be there; a file of it that is there already is not written
    over, and then nothing is. ADDRESS is as ssh has it, with USER@ before and :PORT after it where it needs them; NAME
    alone is a box of your ssh config. What is left out can be written into inventory/home.py.

    Exit codes: 0; 2 the call is wrong, or a file is there already: nothing was written.
    """
    from gpufleet import folder_files, planning

    if not boxes and (serve or user):
        raise click.UsageError("--serve and --user are of boxes: give them with --box NAME=ADDRESS")
    with configuration():
        listed = [box(text, list(serve), user) for text in boxes]
        files = folder_files.files(listed, planning.overrides(settings, ()), {})
        check(files, listed, folder)
    write(folder, files)
    click.echo(f"{folder}: {', '.join(files)}")
    click.echo(next_step(folder, bool(boxes), bool(serve)))


def box(text: str, serve: list[str], user: str | None) -> tuple[str, dict[str, Any]]:
    """A box as an inventory lists it, of NAME, NAME=ADDRESS or NAME=USER@ADDRESS:PORT. Raises ConfigError."""
    name, equals, given = text.partition("=")
    data: dict[str, Any] = {}
    if equals:
        who, _, place = given.rpartition("@")
        found = PLACE.match(place)
        if not found or (who and not USER.match(who)):
            example = "write NAME=ADDRESS, such as turing-1=192.168.1.11"
            raise ConfigError([f"--box {text!r}: {given!r} is no address; {example}"])
        user = who or user
        data["ssh_hostname"] = found["bracketed"] or found["host"] or found["v6"]
        if found["port"]:
            data["ssh_port"] = int(found["port"])
    if user:
        data["ssh_user"] = user
    if serve:
        data["serve"] = serve
    return name, data


def check(files: Mapping[str, str], boxes: Sequence[tuple[str, dict[str, Any]]], folder: Path) -> None:
    """Raises ConfigError for what a deploy of this folder would find wrong in it, before it is there."""
    from gpufleet import inventory

    with tempfile.TemporaryDirectory() as aside:
        write(Path(aside), files)
        if boxes:
            inventory.load(boxes, Path(aside).resolve() / INVENTORY, [folder / "files" / "models"])


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write all of the files, or none. Raises Wrong."""
    if folder.exists() and not folder.is_dir():
        raise Wrong(f"{folder} is a file: name a folder, which need not be there yet")
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise Wrong(f"{folder} has {', '.join(there)} already, and nothing was written: name another folder")
    made: list[Path] = []
    try:
        for name, text in files.items():
            _into(folder / name, text, made)
    except BaseException as error:  # Ctrl-C too
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            where = error.filename or folder
            raise Wrong(f"{where} cannot be written: {error.strerror}, and nothing was: name another folder") from error
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
