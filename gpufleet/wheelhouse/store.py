"""The controller's store of files by hash: a file has its final name only when its bytes were seen to be right."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpufleet.wheelhouse import left, pieces
from gpufleet.wheelhouse.items import FetchError, Item, Made
from gpufleet.wheelhouse.pack import sha256_of
from gpufleet.wheelhouse.progress import size

BLOCK = 1 << 20
PART = ".part"
DAMAGED = ".damaged"  # after the name of a large file that is being mended
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}")
HASH = re.compile(r"[0-9a-f]{64}")
FULL = "Free space there, or set GPUFLEET_STORE to a folder on another disk"


def default_root() -> Path:
    """`~/.cache/gpufleet/store`, below XDG_CACHE_HOME where that is set; or what GPUFLEET_STORE says."""
    if given := os.environ.get("GPUFLEET_STORE"):
        return Path(given).absolute()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "gpufleet" / "store"


class Content(Protocol):
    """What is copied into a store."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Store:
    """Files as `root/<first two of the hash>/<hash>/<filename>`, for several processes at once.

    A file that is being written has `.part` after its name.
    """

    root: Path

    @property
    def made(self) -> Path:
        """Wheels made here, in folders named by what they were made of; each is in the store as well, once on disk."""
        return self.root / "made"

    @property
    def git(self) -> Path:
        """Commits of git repositories."""
        return self.root / "git"

    def path(self, item: Item) -> Path:
        """Where a file is, or will be."""
        if not NAME.fullmatch(item.filename) or not HASH.fullmatch(item.sha256):
            raise FetchError(
                f"{item.filename!r} with sha256 {item.sha256!r} is no file for a store. Look where it is from."
            )
        return self.root / item.sha256[:2] / item.sha256 / item.filename

    def has(self, item: Item) -> bool:
        """Whether a file is there, with its size; its hash was checked when it was put there."""
        try:
            size = self.path(item).stat().st_size
        except OSError:
            return False
        return item.size in (None, size)

    def drop_damaged(self, item: Item) -> bool:
        """Remove a file whose bytes are not what its name says; True when it was so. For one of no known size, whose
        end may be lacking unseen."""
        place = self.path(item)
        if not place.is_file() or sha256_of(place) == item.sha256:
            return False
        place.unlink(missing_ok=True)
        return True

    def part(self, item: Item) -> int:
        """Bytes of a file that were fetched before it broke off, or of one that is being mended."""
        for ending in (DAMAGED, PART):
            with contextlib.suppress(OSError):
                return left.here(self.path(item).with_name(item.filename + ending), item.size)
        return 0

    def sized(self, item: Item) -> Item:
        """A file that is there, with its size."""
        return replace(item, size=self.path(item).stat().st_size)

    @contextlib.contextmanager
    def turn(self, name: str, wait: Callable[[], object]) -> Iterator[None]:
        """Hold a name against other processes and threads; `wait` is called again and again while another has it."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as handle:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    wait()
            yield

    def pieces(self, item: Item) -> list[str] | None:
        """sha256 of each piece of a large file, from when it was checked; None for one that has none."""
        return pieces.kept(self.path(item), item.sha256, item.size or 0)

    def put(self, item: Item, source: Path) -> None:
        """Copy a file into the store; for who has its `turn`. Raises FetchError when it is not the pinned one."""
        with source.open("rb") as handle:
            self.write(item, handle, str(source))

    def write(self, item: Item, content: Content, origin: str, *, in_pieces: bool = False) -> None:
        """Put what `content` holds into the store; see `put`. `origin` names it in an error.

        + in_pieces: keep the hashes of its pieces, too
        """
        place = self.path(item)
        part = place.with_name(item.filename + PART)
        hashing = pieces.Hashing(in_pieces=in_pieces)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            left.drop(part)
            with part.open("wb") as out:
                while block := content.read(BLOCK):
                    hashing.update(block)
                    out.write(block)
                out.flush()
                os.fsync(out.fileno())
            found = hashing.sums
            if found.sha256 != item.sha256 or item.size not in (None, found.size):
                part.unlink()
                raise FetchError(
                    f"{item.filename}: {origin} has sha256 {found.sha256} and {found.size} bytes, not the pinned "
                    f"{item.sha256} and {item.size or 'any number of'} bytes. Do not use it; get it from elsewhere."
                )
            if in_pieces:
                pieces.keep(place, found)
            part.chmod(0o644)
            self.settle(part, place)
        except OSError as error:
            said = error.strerror or error
            raise FetchError(
                f"{item.filename} cannot be copied from {origin} into {self.root}: {said}. {FULL}."
            ) from error

    def link(self, made: Path, sha256: str) -> Item:
        """Take in a file that was made and hashed in this store's folders: another name for the same bytes."""
        item = Item(made.name, sha256, made.stat().st_size, Made())
        place = self.path(item)
        if not self.has(item) or (not place.samefile(made) and sha256_of(place) != sha256):
            place.parent.mkdir(parents=True, exist_ok=True)
            aside = place.with_name(f".{uuid.uuid4().hex}{PART}")
            try:
                aside.hardlink_to(made)
            except OSError:  # a file system without such names
                self.put(item, made)
            else:
                self.settle(aside, place)
        return item

    def settle(self, aside: Path, place: Path) -> None:
        """Give a file its final name, so that it survives a power cut; parts of it are over."""
        aside.replace(place)
        for folder in (place.parent, place.parent.parent):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        part = place.with_name(place.name + PART)
        part.unlink(missing_ok=True)
        left.drop(part)

    def check_room(self, needed: int) -> None:
        """Raises FetchError when the disk has not `needed` bytes left."""
        self.root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.root).free
        if needed > free:
            raise FetchError(f"{self.root}: {size(needed)} are to be written, {size(free)} are free. {FULL}.")
