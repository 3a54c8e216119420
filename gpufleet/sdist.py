"""Patches the source archive of a release and packs it anew, so that a box can build from it without a patch program.

The same archive and series give the same bytes on every controller: sorted, one time, one owner, not compressed
(zlib's output differs between builds).
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from gpufleet.building import TIME
from gpufleet.patches import PatchError, Series
from gpufleet.patching import apply

SDIST = ".tar.gz"


class SdistError(Exception):
    """A source archive that cannot be used: says which, why, and what to do."""


@dataclass(frozen=True)
class File:
    """A file of the archive."""

    content: bytes
    executable: bool


@dataclass(frozen=True)
class Patched:
    """A patched archive; `moved` says which hunks did not lie where the patch was made."""

    filename: str
    data: bytes
    moved: tuple[str, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def stream(self) -> IO[bytes]:
        return io.BytesIO(self.data)


def patched(sdist: Path, sha256: str, series: Series) -> Patched:
    """`NAME-VERSION.tar.gz` with the series applied, as `NAME-VERSION+gpufleet.<series>.tar`.

    Raises SdistError when it is not the archive of this sha256 or holds what a source archive does not; PatchError
    when the series does not apply.
    """
    with sdist.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise SdistError(f"{sdist.name}: sha256 is {found}, the stack says {sha256}. Fetch it again.")
        file.seek(0)
        root, files = read(file, sdist.name)
    try:
        result = apply(series, lambda path: files[path].content if path in files else None)
    except PatchError as error:
        raise PatchError(
            error.patch, f"{error.reason} (in {sdist.name})", target=error.target, hunk=error.hunk, line=error.line
        ) from None
    for path, content in result.files.items():
        if content is None:
            del files[path]
        else:
            files[path] = File(content, path in files and files[path].executable)
    name = f"{sdist.name.removesuffix(SDIST)}+gpufleet.{series.digest[:8]}.tar"
    return Patched(name, pack(root, files), tuple(result.moved))


def read(archive: IO[bytes], name: str) -> tuple[str, dict[str, File]]:
    """The archive's one folder, and its files by their path below it. Raises SdistError."""
    files: dict[str, File] = {}
    roots: set[str] = set()
    try:
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not path.parts:
                    raise SdistError(f"{name}: {member.name!r} leaves the archive's folder. Do not use it.")
                roots.add(path.parts[0])
                if member.isdir():
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or len(path.parts) == 1:
                    raise SdistError(f"{name}: {member.name!r} is no file in a folder. Only such are supported.")
                files[str(PurePosixPath(*path.parts[1:]))] = File(content.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise SdistError(f"{name}: cannot be read ({error}). Fetch it again.") from None
    if len(roots) != 1:
        raise SdistError(f"{name}: has {len(roots)} folders, a source archive has one. Look at the stack's page.")
    return roots.pop(), files


def pack(root: str, files: Mapping[str, File]) -> bytes:
    """A tar whose bytes depend on nothing but names, contents and executable bits."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(f"{root}/{path}")
            info.size, info.mtime = len(files[path].content), TIME
            info.mode = 0o755 if files[path].executable else 0o644
            tar.addfile(info, io.BytesIO(files[path].content))
    return out.getvalue()
