"""The wheel of a version that no page pins: which file of an index or a folder, and with which hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpufleet.wheelhouse import web
from gpufleet.wheelhouse.index import read_page
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item
from gpufleet.wheelhouse.pack import sha256_of
from gpufleet.wheelhouse.places import Places, as_path
from gpufleet.wheelhouse.tags import best, ranked

GLIBC = 99  # minor version: only its Python is read, so a wheel for any Linux will do


def choose(filenames: Iterable[str], origin: FromIndex, python: str) -> str | None:
    """Of these files the best wheel of a version for CPython `python` (`3.12`); None: there is none.

    Raises FetchError for what is no version.
    """
    try:
        version = Version(origin.version)
    except InvalidVersion:
        raise FetchError(f"{origin.name}: {origin.version!r} is no version of a Python package") from None
    wanted = (canonicalize_name(origin.name), version)
    return best((name for name in filenames if _release(name) == wanted), ranked(python, GLIBC))


def _release(filename: str) -> tuple[str, Version] | None:
    try:
        return parse_wheel_filename(filename)[:2]
    except InvalidWheelFilename:
        return None


def inside(folders: Iterable[Path], origin: FromIndex, python: str) -> Path | None:
    """The wheel in one of these folders of this machine, asked in order."""
    for folder in folders:
        if found := choose((path.name for path in folder.glob("*.whl")), origin, python):
            return folder / found
    return None


def find(origin: FromIndex, python: str, places: Places) -> Item:
    """The wheel with its hash, of the first folder or index that has that version. Raises FetchError."""
    if path := inside(places.folders, origin, python):
        return Item(path.name, sha256_of(path), path.stat().st_size, origin)
    open_url, asked = web.opener(places.known), list[str]()
    for index in places.indexes_for(origin):
        links = read_page(index, canonicalize_name(origin.name), open_url)
        if isinstance(links, str):
            asked.append(f"{web.without_login(index)} {links}")
            continue
        files = {link.filename: link for link in links}
        if (name := choose(files, origin, python)) is None:
            asked.append(f"{web.without_login(index)} has no wheel of that version for Linux and Python {python}")
            continue
        digest, path = files[name].sha256, as_path(files[name].url)
        if digest is None and path is not None:
            digest = sha256_of(path)
        if digest is not None:
            return Item(name, digest, files[name].size, origin)
        asked.append(f"{web.without_login(index)} says no sha256 of {name}")
    raise FetchError(_nowhere(origin, asked))


def _nowhere(origin: FromIndex, asked: Sequence[str]) -> str:
    return (
        f"{origin.name} {origin.version}: no wheel can be found: {'; '.join(asked) or 'no index is set'}. Look whether "
        "there is such a version and at this machine's network and indexes (mirrors.pypi, pip config list), or give "
        "the path of a wheel."
    )
