"""An archive of compiled files: made the same of the same files, and unpacked without trusting its names."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import Iterable, Sequence

from hostkit.errors import Failure


def make(path: str, root: str, names: Iterable[str]) -> None:
    """Pack these files below `root`. Of a file only its name, content and whether it is executable go in."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(names):
            source = os.path.join(root, name)
            entry = tarfile.TarInfo(name)
            entry.size = os.path.getsize(source)
            entry.mode = 0o755 if os.access(source, os.X_OK) else 0o644
            with open(source, "rb") as handle:
                archive.addfile(entry, handle)


def unpack(path: str, root: str, folders: Sequence[str]) -> None:
    """Unpack into these folders below `root`, which must be real directories of it once they are there.

    Raises Failure for anything but a plain file in one of them, or byte code, before the first is written.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            entries = archive.getmembers()
            for entry in entries:
                check(entry, path, root, folders)
            for entry in entries:
                target = os.path.join(root, entry.name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                source = archive.extractfile(entry)
                assert source is not None  # a plain file has content
                with source, open(target, "wb") as handle:
                    shutil.copyfileobj(source, handle, 1 << 20)
                os.chmod(target, 0o755 if entry.mode & 0o100 else 0o644)
    except tarfile.TarError as error:
        raise refused(path, "it cannot be read: {}".format(error))


def check(entry: tarfile.TarInfo, path: str, root: str, folders: Sequence[str]) -> None:
    name = entry.name
    if not entry.isreg():
        raise refused(path, "{!r} in it is no plain file".format(name))
    if os.path.isabs(name) or os.path.normpath(name) != name or name.startswith(".."):
        raise refused(path, "{!r} in it is no name to unpack".format(name))
    if not is_byte_code(name) and not any(name.startswith(folder.strip("/") + "/") for folder in folders):
        raise refused(path, "{!r} in it is in none of {}".format(name, ", ".join(folders)))
    place = os.path.dirname(os.path.join(root, name))
    if os.path.realpath(place) != os.path.join(os.path.realpath(root), os.path.dirname(name)):
        raise refused(path, "{!r} in it would go through a link".format(name))


def is_byte_code(name: str) -> bool:
    """Whether a path is one where Python looks for a compiled module."""
    return name.endswith(".pyc") and os.path.basename(os.path.dirname(name)) == "__pycache__"


def refused(path: str, why: str) -> Failure:
    return Failure(
        "the archive {} is not used: {}".format(os.path.basename(path), why),
        "delete {} on this box and where it came from, then deploy again: it is compiled anew".format(path),
    )
