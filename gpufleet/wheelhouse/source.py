"""Makes a wheel of pure Python packages of a git repository, without running any of the repository's code.

Only the folders that the page names go in, with all that lies in them (`.cu` files as well), in fixed order, not
compressed, without times and modes of their own: the bytes are the same on every controller. The wheel asks for no
other package: what it needs is in the stack's lock, as the versions a repository pins rarely fit the engine's.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from packaging.version import Version

from gpufleet import patches, patching
from gpufleet.parts import Source
from gpufleet.wheelhouse import series
from gpufleet.wheelhouse.git import Git
from gpufleet.wheelhouse.pack import (
    ODD,
    Repacked,
    WheelError,
    add,
    add_record,
    cause,
    keep,
    local_version,
    stamp_of,
    stem_of,
)

WHEEL = "Wheel-Version: 1.0\nGenerator: gpufleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def content_digest(files: Mapping[str, bytes]) -> str:
    """`sha256` of a source: of its packages' files before any patch, by path in the repository and content.

    The sha256 of all pairs sha256(path) + sha256(content), in the order of the paths. Modes do not count.
    """
    return patches.digest_of((path, hashlib.sha256(files[path]).hexdigest()) for path in sorted(files))


def build(source: Source, patches_dir: Path, out_dir: Path, git: Git) -> Repacked:
    """A source as a wheel; kept in `out_dir`, named by content, so that the second time nothing is fetched.

    + patches_dir: the folder `files/patches` of the stack
    Raises WheelError, GitError or PatchError.
    """
    stamp = stamp_of(
        {
            "content": source.sha256,
            "packages": sorted(source.packages),
            "series": series.digest(source, patches_dir),
        }
    )
    local = local_version(Version(source.version), source.name, source.name, stamp)
    stem = stem_of(source.name, local)
    key = hashlib.sha256(f"{stem} {stamp}".encode()).hexdigest()[:16]

    def write(target: Path) -> list[str]:
        files = genuine(source, git)
        result = patching.apply(series.of(source, patches_dir, git), files.get)
        try:
            _write(target, source, {**files, **result.files}, stem, local)
        except ODD as error:
            raise WheelError(f"{source.name}: no wheel can hold it: {cause(error)}. Mend its patches.") from error
        return result.moved

    return keep(out_dir, key, f"{stem}-py3-none-any.whl", local, write)


def genuine(source: Source, git: Git) -> dict[str, bytes]:
    """The files of a source's packages as published, by their paths in the repository. Raises GitError or WheelError
    when they are not those that the page means; the error has the right sha256."""
    files = git.tree(source.git, source.commit, source.packages)
    if (got := content_digest(files)) != source.sha256:
        raise WheelError(
            f"{source.name}: {', '.join(source.packages)} at commit {source.commit} have sha256 {got}, the stack says "
            f"{source.sha256}. If commit and packages are what you mean, write {got} into the page."
        )
    return files


def _write(target: Path, source: Source, files: Mapping[str, bytes | None], stem: str, local: str) -> None:
    """The wheel of these files, given by their paths in the repository (None: removed by a patch)."""
    inside = {_inside(source, path): content for path, content in files.items() if content is not None}
    metadata = f"Metadata-Version: 2.1\nName: {source.name}\nVersion: {local}\n"
    with zipfile.ZipFile(target, "w") as packed:
        rows = [add(packed, path, inside[path]) for path in sorted(inside)]
        rows.append(add(packed, f"{stem}.dist-info/METADATA", metadata.encode()))
        rows.append(add(packed, f"{stem}.dist-info/WHEEL", WHEEL.encode()))
        add_record(packed, stem, rows)


def _inside(source: Source, path: str) -> str:
    """A file's path in the wheel: packages are installed by the last name of their folder, as `src/name` is `name`."""
    names = [PurePosixPath(folder).name for folder in source.packages]
    if len(names) != len(set(names)):
        raise WheelError(f"{source.name}: two of its packages have one name: {', '.join(source.packages)}")
    for folder in source.packages:
        if PurePosixPath(path).is_relative_to(folder):
            return str(PurePosixPath(path).relative_to(PurePosixPath(folder).parent))
    raise WheelError(f"{source.name}: a patch makes {path}, which is in none of {', '.join(source.packages)}")
