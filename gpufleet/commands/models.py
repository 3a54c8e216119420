"""`gpufleet models`: pages of models, written from the checkpoints themselves."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from pathlib import Path

import click

from gpufleet import terminal
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.commands.models_check import check
from gpufleet.commands.models_fit import fit
from gpufleet.errors import BOX_FAILED

PAGES = Path("files/models")
UNWRITABLE = "Free space or mend its permissions, name another folder with --into, or give --print"


@click.group()
def models() -> None:
    """Pages of models: written from the checkpoints themselves."""


models.add_command(check)
models.add_command(fit)


@models.command()
@click.argument("source")
@click.option("--name", metavar="NAME", help="Of the model and its page; default: the checkpoint's, in small letters.")
@click.option("--revision", metavar="REV", help="A branch, tag or commit of the repository; default: its main branch.")
@click.option("--mtp-head", metavar="SOURCE[:FILE]", help="Another MTP head in place of the checkpoint's own.")
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR", help="Folder of pages; default: files/models.")
@click.option("--print", "printed", is_flag=True, help="Write nothing: print the page.")
@click.option("--force", is_flag=True, help="Write over a page that differs.")
@click.option("--no-architecture", "shapeless", is_flag=True, help="Leave out, or as it is, what the model is.")
def add(
    source: str,
    name: str | None,
    revision: str | None,
    mtp_head: str | None,
    into: Path | None,
    printed: bool,
    force: bool,
    shapeless: bool,
) -> None:
    """Write the page of the checkpoint at SOURCE: its files with sizes and sha256, and what it is.

    SOURCE is a repository of the hub (owner/name, hf:owner/name@revision, or the address of its page), an http address
    below which the files are, or a folder. Only headers are read, and for sha256 what its place does not tell.
    The hub is the one that group_data/all.py names (mirrors.hub), else HF_ENDPOINT; a token is that of its own client
    (HF_TOKEN, hf auth login).

    Of a model that has a page its recipe stays, with its comments: only revision, source, mtp_head and architecture
    are renewed. A page in DIR that would change is shown, and written over with --force only.

    Exit codes: 0; 1 a file could not be had; 2 the call or the checkpoint is wrong, or the page differs.
    """
    from gpufleet import paths
    from gpufleet.checkpoint import adding, making, places
    from gpufleet.wheelhouse import hub, targets
    from gpufleet.wheelhouse.items import FetchError

    folder = None if printed and into is None else _folder(into)
    try:
        with configuration():
            at = hub.endpoint(targets.settings({}).mirrors)
            place = places.place(source, at, revision)
            called = making.named(place, name)
            there = folder / f"{called}.yaml" if folder else None
            head = places.head(mtp_head, at) if mtp_head else None
            known = [*([folder] if folder else []), *reversed(paths.model_folders(Path.cwd()))]
            made = making.make(place, called, known, head, at, not shapeless, _say)
    except FetchError as error:
        click.echo(terminal.told(f"gpufleet: {error}"), err=True)
        sys.exit(BOX_FAILED)
    if made.found.architecture:
        _say(adding.in_words(made.found.architecture))
    for note in made.found.notes:
        _say(f"note: {note}")
    if made.recipe is not None:
        _say(f"the recipe is that of {made.recipe}")
    if printed or there is None:
        click.echo(terminal.plain(made.text), nl=False)
    else:
        write(there, made.text, force)


def _say(text: str) -> None:
    click.echo(terminal.told(text), err=True)


def _folder(into: Path | None) -> Path:
    """Where pages are; what is wrong with it is said before anything is read."""
    found = _named(into)
    if found.is_dir() and not os.access(found, os.W_OK | os.X_OK):
        raise Wrong(f"{found} cannot be written. {UNWRITABLE}")
    return found


def _named(into: Path | None) -> Path:
    if into is not None:
        if not into.is_dir():
            raise Wrong(f"there is no folder {into}: make it, or name another one")
        return into
    if not PAGES.is_dir() and not Path("deploy.py").is_file():
        raise Wrong(f"there is no folder {PAGES} here: call it in the fleet's folder, or give --into DIR or --print")
    return PAGES


def write(there: Path, text: str, force: bool, quiet: bool = False) -> None:
    """Write a page whole or not at all. + quiet: say nothing where all is well. Raises Wrong where one differs."""
    before = there.read_text(encoding="utf-8") if there.is_file() else None
    if before == text:
        if not quiet:
            click.echo(f"{there}: as it was")
        return
    if before is not None:
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), str(there), "as the checkpoint says", lineterm=""
        )
        click.echo(terminal.plain("\n".join(lines)))
        if not force:
            raise Wrong(f"{there} differs and stays as it is: write over it with --force")
    place = there.resolve()  # of a link the file that it leads to
    aside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(place)
    except OSError as error:
        stays = "; the page that is there stays" if before is not None else ""
        raise Wrong(f"{there} cannot be written: {error.strerror}{stays}. {UNWRITABLE}") from error
    finally:  # a full disk and Ctrl-C leave nothing half written
        with contextlib.suppress(OSError):
            aside.unlink()
    if not quiet:
        click.echo(f"{there}: written")
