"""The store's files in one tar, to be carried to a controller without internet; every hash is checked both ways."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from pydantic import Field, StringConstraints

from gpufleet.errors import ConfigError
from gpufleet.schema import Data, OneLine, Sha256, read
from gpufleet.wheelhouse.download import LOOK_SECONDS
from gpufleet.wheelhouse.items import FetchError, Item, Made
from gpufleet.wheelhouse.pack import NOTE, SUM
from gpufleet.wheelhouse.prepare import made_folder
from gpufleet.wheelhouse.progress import size
from gpufleet.wheelhouse.store import PART, Store

MANIFEST = "gpufleet-store.json"
LARGEST_MANIFEST = 16 << 20  # bytes
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class Kept(Data):
    """A wheel that was made: the name of its folder, which says what it was made of, and that folder's note."""

    key: Key
    note: OneLine


class Member(Data):
    """A file of the archive; it is the member `<sha256>/<filename>`."""

    filename: OneLine
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    made: Kept | None = None
    in_pieces: bool = False  # whether the hashes of its pieces are kept

    @property
    def path(self) -> str:
        return f"{self.sha256}/{self.filename}"

    @property
    def item(self) -> Item:
        return Item(self.filename, self.sha256, self.size, Made())


class Manifest(Data):
    """The first member of an archive."""

    schema_: Literal[1] = Field(alias="schema")
    files: list[Member]


class _Hashed(io.RawIOBase):
    """Hashes what is read of a file."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle, self.digest = handle, hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        block = self.handle.read(count)
        self.digest.update(block)
        return block


def write(store: Store, items: Iterable[Item], path: Path) -> int:
    """Write these files of the store as one tar; returns its bytes. The same files give the same bytes.

    It has its name only when it is whole. Raises FetchError, also for a file of the store that is damaged.
    """
    files = sorted((_member(store, item) for item in items), key=lambda member: (member.filename, member.sha256))
    text = Manifest(schema=1, files=files).model_dump_json(by_alias=True, indent=1).encode() + b"\n"
    needed = sum(member.size for member in files)
    try:
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise FetchError(f"{path}: {size(needed)} are to be written, {size(free)} are free. Name a file elsewhere.")
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{PART}")
        try:
            with aside.open("xb") as out:
                with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    tar.addfile(_info(MANIFEST, len(text)), io.BytesIO(text))
                    for member in files:
                        _add(tar, store, member)
                out.flush()
                os.fsync(out.fileno())
            written = aside.stat().st_size
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise FetchError(f"{path} cannot be written: {error.strerror or error}. Name a file elsewhere.") from error
    return written


def put(store: Store, path: Path) -> tuple[int, int]:
    """Put an archive's files into the store: (files, those of them that were new). Raises FetchError.

    What was put before something is found wrong stays; the next run goes on after it.
    """
    try:
        with tarfile.open(path, "r:") as tar:
            manifest = _manifest(tar, path)
            members = {info.name: info for info in tar.getmembers()[1:]}  # which fails for one that is cut short
            lacking = [member for member in manifest.files if not store.has(member.item)]
            store.check_room(sum(member.size for member in lacking))
            for member in lacking:
                info = members.get(member.path)
                content = tar.extractfile(info) if info and info.isreg() else None
                if content is None:
                    raise FetchError(f"{path} has no {member.path}, which its own list names: copy it again")
                with store.turn(member.sha256, lambda: time.sleep(LOOK_SECONDS)):
                    store.write(member.item, content, str(path), in_pieces=member.in_pieces)
            with store.turn("made", lambda: time.sleep(LOOK_SECONDS)):
                for member in manifest.files:
                    if member.made:
                        _keep(store, member, member.made)
    except tarfile.TarError as error:
        raise FetchError(
            f"{path} is no whole archive of `gpufleet fetch --archive`: {error}. Copy it again, and compare its sha256."
        ) from error
    except OSError as error:
        raise FetchError(f"{path} cannot be put into {store.root}: {error}. Mend that, and call it again.") from error
    return len(manifest.files), len(lacking)


def _member(store: Store, item: Item) -> Member:
    sized = store.sized(item)
    kept = None
    if folder := made_folder(store, sized):
        kept = Kept(key=folder.name, note=(folder / NOTE).read_text(encoding="utf-8"))
    in_pieces = store.pieces(sized) is not None
    return Member(filename=sized.filename, sha256=sized.sha256, size=sized.size or 0, made=kept, in_pieces=in_pieces)


def _info(name: str, length: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = length, 0o644
    return info


def _add(tar: tarfile.TarFile, store: Store, member: Member) -> None:
    place = store.path(member.item)
    with place.open("rb") as handle:
        hashed = _Hashed(handle)
        tar.addfile(_info(member.path, member.size), cast("IO[bytes]", hashed))
    if hashed.digest.hexdigest() != member.sha256:
        raise FetchError(f"{place} is damaged: its bytes have another sha256. Delete it, and fetch again.")


def _manifest(tar: tarfile.TarFile, path: Path) -> Manifest:
    first = tar.next()
    content = tar.extractfile(first) if first and first.name == MANIFEST and first.size < LARGEST_MANIFEST else None
    if content is None:
        raise FetchError(f"{path} does not begin with {MANIFEST}. Name a file that `gpufleet fetch --archive` made.")
    try:
        found = json.loads(content.read())
        return read(Manifest, found if isinstance(found, dict) else {}, f"{path}: {MANIFEST}")
    except (ValueError, ConfigError, RecursionError) as error:
        raise FetchError(
            f"{path}: its list of files is wrong: {' '.join(str(error).split())}. Make it again."
        ) from None


def _keep(store: Store, member: Member, kept: Kept) -> None:
    """Make the folder of a made wheel, so that it is found as if it were made here; for who has the turn `made`."""
    folder = store.made / kept.key
    if (folder / member.filename).is_file():
        return
    store.made.mkdir(parents=True, exist_ok=True)
    aside = store.made / f".{uuid.uuid4().hex}"
    aside.mkdir()
    try:
        (aside / NOTE).write_text(kept.note, encoding="utf-8")
        (aside / SUM).write_text(member.sha256)
        _same(store.path(member.item), aside / member.filename)
        shutil.rmtree(folder, ignore_errors=True)  # one that lost its wheel
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _same(source: Path, name: Path) -> None:
    """Another name for a file, or where the file system knows no such names a copy."""
    try:
        name.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, name)
