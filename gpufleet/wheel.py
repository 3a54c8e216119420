"""Repacks a wheel with patches, so that a patched engine needs no compiler.

The repacked wheel is a genuine one: its own local version (`0.27.1+gpufleet.1a2b3c4d`), a regenerated RECORD, so pip
and uv install, check and remove it like any other. Entries that no patch touches are copied as they are compressed:
that takes a second instead of minutes, and the bytes do not depend on the controller's zlib.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from gpufleet import patches, patching
from gpufleet.parts import Wheel
from gpufleet.wheelhouse import series
from gpufleet.wheelhouse.git import Git
from gpufleet.wheelhouse.pack import (
    ODD,
    DamagedError,
    Repacked,
    WheelError,
    add,
    add_record,
    cause,
    copy,
    keep,
    local_version,
    sha256_of,
    stamp_of,
    stem_of,
)

__all__ = ["Repacked", "WheelError", "repack"]


def repack(wheel: Path, entry: Wheel, patches_dir: Path, out_dir: Path, git: Git | None = None) -> Repacked:
    """Apply an entry's series, name and changed requirements to its wheel; kept in `out_dir`, named by content.

    + git: where the files of `patches_from` come from, when the wheel is not there yet
    """
    options = {
        "series": series.digest(entry, patches_dir),
        "rename": entry.rename,
        "drop_requires": sorted(entry.drop_requires),
    }
    if entry.replace_requires:  # not an empty key: names of wheels made before there was one stay
        options["replace_requires"] = sorted(entry.replace_requires)
    stamp = stamp_of(options)
    old_name, old_version, _, _ = parse_wheel_filename(wheel.name)
    name = entry.rename or entry.name
    local = local_version(old_version, old_name, name, stamp)
    stem = stem_of(name, local)
    key = hashlib.sha256(f"{entry.sha256} {stamp}".encode()).hexdigest()[:16]

    def write(target: Path) -> list[str]:
        wanted = series.of(entry, patches_dir, git)
        if sha256_of(wheel) != entry.sha256:
            raise DamagedError(wheel)
        try:
            return _write(wheel, target, wanted, stem, name, local, entry)
        except ODD as error:
            raise WheelError(
                f"{wheel.name} cannot be repacked: {cause(error)}. It has the sha256 of the stack's page, so fetching "
                "it again is no help: name another wheel there, or mend the patches."
            ) from error

    return keep(out_dir, key, f"{stem}-{'-'.join(wheel.name.split('-')[-3:])}", local, write)


def _write(
    wheel: Path, target: Path, wanted: patches.Series, stem: str, name: str, local: str, entry: Wheel
) -> list[str]:
    """Write the new wheel; returns the hunks that moved."""
    with zipfile.ZipFile(wheel) as source, wheel.open("rb") as raw, target.open("wb") as out:
        names = set(source.namelist())
        old_info = _dist_info(wheel, names)
        result = patching.apply(wanted, partial(_read, source))
        changed = dict(result.files)
        metadata = f"{old_info}/METADATA"
        changed[metadata] = _metadata(changed.get(metadata) or source.read(metadata), wheel.name, name, local, entry)
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
                    rows.append(add(packed, new_path, content, info.external_attr))
                else:
                    copy(raw, info, packed, new_path)
                    if not info.is_dir():
                        if path not in record:
                            raise WheelError(f"{wheel.name}: its RECORD does not name {path}. Name another wheel.")
                        rows.append([new_path, *record[path]])
            for path in sorted(set(changed) - names):
                rows.append(add(packed, path, changed[path] or b""))
            add_record(packed, stem, rows)
    return result.moved


def _dist_info(wheel: Path, names: set[str]) -> str:
    found = sorted({name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")})
    if len(found) != 1 or f"{found[0]}/RECORD" not in names or f"{found[0]}/METADATA" not in names:
        raise WheelError(f"{wheel.name}: not a wheel: expected one .dist-info with METADATA and RECORD, found {found}")
    return found[0]


def _metadata(content: bytes, wheel: str, name: str, local: str, entry: Wheel) -> bytes:
    """METADATA with the new name and version and the entry's requirements; every other line as it was."""
    head, gap, body = content.decode().partition("\n\n")
    fates: dict[str, str | None] = {canonicalize_name(item): None for item in entry.drop_requires}
    fates |= {canonicalize_name(Requirement(item).name): item for item in entry.replace_requires}
    seen: set[str] = set()
    lines = []
    for line in head.split("\n"):
        key, _, value = line.partition(": ")
        if key == "Requires-Dist" and (required := canonicalize_name(Requirement(value).name)) in fates:
            instead = fates[required]
            if instead is not None and required not in seen:
                lines.append(f"Requires-Dist: {instead}")
            seen.add(required)
            continue
        lines.append({"Name": f"Name: {name}", "Version": f"Version: {local}"}.get(key, line))
    for unseen in sorted(set(fates) - seen):
        option = "drop_requires" if fates[unseen] is None else "replace_requires"
        raise WheelError(f"{wheel}: {option} names {unseen}, which it does not require. Take that out of the stack.")
    return ("\n".join(lines) + gap + body).encode()


def _tags(content: bytes, wheel: str) -> bytes:
    """WHEEL with the tags of the file name; where a publisher renamed only the file, `uv pip check` would complain."""
    lines = [line for line in content.decode().splitlines() if line.strip() and not line.startswith("Tag: ")]
    lines += [f"Tag: {tag}" for tag in sorted(str(tag) for tag in parse_wheel_filename(wheel)[3])]
    return ("\n".join(lines) + "\n").encode()


def _read(source: zipfile.ZipFile, path: str) -> bytes | None:
    try:
        return source.read(path)
    except KeyError:
        return None
