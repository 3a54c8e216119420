"""`gpufleet fetch`: everything a fleet or a stack needs into the controller's store, or into one file to carry."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpufleet import terminal
from gpufleet.commands.folder import configuration, enter
from gpufleet.errors import BOX_FAILED

if TYPE_CHECKING:
    from gpufleet.wheelhouse.store import Store
    from gpufleet.wheelhouse.targets import ModelTarget, Target


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path), required=False)
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--stack", "stacks", multiple=True, metavar="NAME", help="This stack, in place of an inventory.")
@click.option("--arch", "archs", multiple=True, metavar="ARCH", help="The stack made for these cards: sm75, cpu, …")
@click.option("--python", "pythons", multiple=True, metavar="VERSION", help="Of the boxes, 3.12; default: all locked.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="This model; what is there of it is read.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, such as mirrors.pypi=…")
@click.option("--archive", type=click.Path(path_type=Path), metavar="FILE", help="Write it all as one tar, too.")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="Put such a tar into the store."
)
def fetch(
    inventory: Path | None,
    limit: tuple[str, ...],
    stacks: tuple[str, ...],
    archs: tuple[str, ...],
    pythons: tuple[str, ...],
    models: tuple[str, ...],
    settings: tuple[str, ...],
    archive: Path | None,
    source: Path | None,
) -> None:
    """Get all that the boxes of INVENTORY need into this controller's store, by the facts that were kept.

    Or what the stacks of --stack or --arch and the models of --model need, without any inventory. What is there is not
    fetched again; files of a model that --model names are read, and what is damaged of them is mended. With --archive
    it is also written as one file; on a controller without internet `gpufleet fetch --from FILE` takes it in, and a
    deploy with the setting fetch.offline uses nothing else.

    Exit codes: 0; 1 a file could not be had; 2 the call or the configuration is wrong; 130 interrupted.
    """
    from gpufleet import planning
    from gpufleet.wheelhouse import targets
    from gpufleet.wheelhouse.store import Store, default_root

    named = bool(stacks or archs or pythons or models)
    if source is not None:
        if inventory or named or limit or settings or archive:
            raise click.UsageError("--from goes alone: it puts a file into the store")
        _take_in(Store(default_root()), source)
    if not inventory and not (stacks or archs or models):
        raise click.UsageError("give an inventory, such as inventory/home.py, or --stack, --arch, --model or --from")
    if pythons and not (stacks or archs or inventory):
        raise click.UsageError("--python is for --stack and --arch")
    if inventory and named:
        raise click.UsageError("give an inventory, or --stack, --arch, --python and --model, not both")
    if limit and not inventory:
        raise click.UsageError("--limit is for an inventory")
    place = _writable(archive) if archive else None
    terminal.outlive_readers()
    with configuration():
        overrides = planning.overrides(settings, ())
        if inventory:
            runtimes, meant = targets.of_inventory(enter(inventory), overrides, limit)
        else:
            runtimes = targets.of_stacks(stacks, archs, pythons, overrides) if stacks or archs else []
            meant = targets.of_models(models, overrides)
        _fetch(Store(default_root()), runtimes, meant, place, read=bool(models))


def _writable(archive: Path) -> Path:
    """Where the archive goes, said before anything is fetched. A device or pipe would be replaced by a file."""
    place = archive.absolute()
    if not place.name or place.is_dir() or (place.exists() and not place.is_file()):
        raise click.UsageError(f"--archive {archive} is no file; name one to be written, such as store.tar")
    if not place.parent.is_dir():
        raise click.UsageError(f"--archive {archive}: there is no folder {place.parent}; make it, or name another")
    return place


def _say(text: str) -> None:
    click.echo(terminal.plain(text))


def _fail(problem: object) -> None:
    click.echo(terminal.told(f"gpufleet: {problem}"), err=True)


def _fetch(store: Store, wanted: list[Target], models: list[ModelTarget], archive: Path | None, *, read: bool) -> None:
    """+ read: models' files that are there are read, too"""
    from gpufleet import model_files
    from gpufleet.settings import Fetch
    from gpufleet.wheelhouse import archive as archives
    from gpufleet.wheelhouse.download import Tally
    from gpufleet.wheelhouse.items import FetchError, Item, once
    from gpufleet.wheelhouse.prepare import published, ready
    from gpufleet.wheelhouse.progress import size

    tally, items, failed = Tally(), list[Item](), False
    for target in wanted:
        runtime = target.runtime
        _say(f"{runtime.stack.name}, Python {runtime.python}")
        try:
            # Whoever calls this wants it fetched, and here: fetch.by and fetch.offline are for deploys.
            items += ready(runtime, store, target.mirrors, Fetch(), _say, tally)
            items += published(runtime, store, target.mirrors, _say, tally)
        except FetchError as error:
            failed = True
            _fail(error)
    for model in models:
        meant = model_files.items(model.model, model.mirrors)
        if meant:
            _say(f"model {model.model.name}")
        try:
            get = model_files.mend if read else model_files.bring
            get([item for item in meant if read or not store.has(item)], store, model.mirrors, _say, tally)
            items += meant
        except FetchError as error:
            failed = True
            _fail(error)
    items = once(items)
    total = sum(item.size or 0 for item in items)
    came = f"{tally.files} of them ({size(tally.bytes)}) came from outside"
    _say(f"{len(items)} files, {size(total)} in {store.root}; {came}")
    if archive and not failed:
        try:
            _say(f"{archive}: {size(archives.write(store, items, archive))}")
        except FetchError as error:
            failed = True
            _fail(error)
    sys.exit(BOX_FAILED if failed else 0)


def _take_in(store: Store, source: Path) -> None:
    from gpufleet.wheelhouse import archive
    from gpufleet.wheelhouse.items import FetchError

    if not source.is_file():
        raise click.UsageError(f"there is no file {source}")
    try:
        files, new = archive.put(store, source)
    except FetchError as error:
        _fail(error)
        sys.exit(BOX_FAILED)
    _say(f"{files} files in {store.root}, {new} of them new")
    sys.exit(0)
