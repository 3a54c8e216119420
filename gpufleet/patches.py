"""Series of patches as they lie in a folder, and the digest that names one. They are applied by gpufleet.patching."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


class PatchError(Exception):
    """A series that cannot be applied: names the patch, and where known its target, hunk and line."""

    def __init__(
        self, patch: str, reason: str, *, target: str | None = None, hunk: int | None = None, line: int | None = None
    ):
        self.patch, self.reason, self.target, self.hunk, self.line = patch, reason, target, hunk, line
        place = patch if line is None else f"{patch}:{line}"
        if target is not None:
            place += f": {target}"
        if hunk is not None:
            place += f", hunk {hunk}"
        super().__init__(f"{place}: {reason}")


@dataclass(frozen=True)
class Patch:
    """One file of a series."""

    name: str
    text: str


@dataclass(frozen=True)
class Series:
    """A folder's patches in the order of its `series` file."""

    patches: tuple[Patch, ...] = ()

    @property
    def digest(self) -> str:
        """Changes with any byte of any patch and with their order."""
        texts = (patch.text.encode("utf-8", "surrogateescape") for patch in self.patches)
        return digest_of(
            (patch.name, sha256(text).hexdigest()) for patch, text in zip(self.patches, texts, strict=True)
        )


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """The digest of files in their order, each given by its name and its sha256."""
    total = sha256()
    for name, content in files:
        total.update(sha256(name.encode("utf-8", "surrogateescape")).digest() + bytes.fromhex(content))
    return total.hexdigest()


def read_series(folder: Path) -> Series:
    """Read `series` and the patches it names; a patch that it forgets is an error too."""
    index = folder / "series"
    try:
        wanted = index.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise PatchError(
            str(index), "no such file; it lists the patches of this folder, one a line, in order"
        ) from None
    except UnicodeDecodeError as error:
        raise PatchError(str(index), f"is no text: {error}") from None
    names = [line.strip() for line in wanted if line.strip() and not line.lstrip().startswith("#")]
    there = {path.name for path in folder.glob("*.patch")}
    for name in names:
        if names.count(name) > 1:
            raise PatchError(str(index), f"{name} is listed twice")
        if name not in there:
            raise PatchError(str(index), f"{name} is listed, but {folder} has no such .patch file")
    if forgotten := sorted(there - set(names)):
        raise PatchError(str(index), f"not listed: {', '.join(forgotten)}; list or delete")
    return Series(tuple(Patch(name, (folder / name).read_bytes().decode("utf-8", "surrogateescape")) for name in names))
