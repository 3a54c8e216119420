"""The series of a patched wheel or source: a folder of the product's or an owner's, or files of a git repository."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gpufleet.parts import Patched
from gpufleet.patches import Series, digest_of, read_series
from gpufleet.wheelhouse.git import Git, GitError


def digest(part: Patched, patches_dir: Path) -> str:
    """The digest of a part's series, from the page and the folder alone: nothing is fetched."""
    if part.patches_from:
        return digest_of((PurePosixPath(item.path).name, item.sha256) for item in part.patches_from.files)
    return of(part, patches_dir, None).digest


def of(part: Patched, patches_dir: Path, git: Git | None) -> Series:
    """A part's series. Raises PatchError for a wrong folder, GitError for files that cannot be had."""
    if part.patches:
        return read_series(patches_dir / part.patches)
    if part.patches_from is None:
        return Series()
    if git is None:
        raise GitError(f"{part.patches_from.git}: patches of a git repository cannot be fetched here")
    return git.series(part.patches_from)
