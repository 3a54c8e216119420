"""A package index (PEP 503, with PEP 658 metadata) as static files: everything a box installs with uv or pip."""

from __future__ import annotations

import hashlib
import html
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from lab import cache
from lab.errors import LabError
from lab.locks import Pin, wanted
from lab.paths import REPOSITORY, Settings
from lab.pip import download


def index(settings: Settings, files: Path = REPOSITORY / "files") -> Path:
    """The directory to serve as /simple; its wheels stay in a pool, so that a changed lock fetches only what is new."""
    pins = wanted(files)
    pool = settings.cache / "wheels"

    def build(directory: Path) -> None:
        fetch(pins, pool, settings.torch_index)
        hashes = {value for pin in pins for value in pin.hashes}
        write_index(matching(pool, hashes), directory)

    return cache.once(settings.cache, "wheelhouse", sorted(pin.line() for pin in pins), build)


def fetch(pins: Sequence[Pin], pool: Path, torch_index: str) -> None:
    download_once([pin for pin in pins if not pin.local], pool)
    builds = [pin for pin in pins if pin.local]
    try:
        download_once(builds, pool)
    except LabError as first:
        # this machine's pip may know such builds (find-links, a mirror); the usual place is PyTorch's own index
        try:
            download_once(builds, pool, torch_index)
        except LabError as second:
            raise LabError(
                f"{', '.join(pin.requirement for pin in builds)}: not with this machine's pip, nor at {torch_index}:\n"
                f"{first.cause}\n{second.cause}",
                "Name a folder with the wheel in PIP_FIND_LINKS, or an index in GPUFLEET_LAB_TORCH_INDEX.",
            ) from second


def download_once(pins: Iterable[Pin], pool: Path, index: str | None = None) -> None:
    """One call for all: two pins of one name (two stacks) go in calls of their own, since pip takes a name once."""
    left = list(pins)
    while left:
        names: set[str] = set()
        batch: list[Pin] = []
        later: list[Pin] = []
        for pin in left:
            name = pin.requirement.partition("==")[0].lower()
            (later if name in names else batch).append(pin)
            names.add(name)
        download([pin.line() for pin in batch], pool, index)
        left = later


def matching(pool: Path, hashes: set[str]) -> dict[Path, str]:
    """The wheels of the pool that a pin asks for, with their sha256."""
    digests = {wheel: cache.file_digest(wheel) for wheel in sorted(pool.glob("*.whl"))}
    return {wheel: digest for wheel, digest in digests.items() if f"sha256:{digest}" in hashes}


def write_index(wheels: dict[Path, str], directory: Path) -> None:
    projects: dict[str, list[str]] = {}
    for wheel, digest in wheels.items():
        name = str(parse_wheel_filename(wheel.name)[0])
        project = directory / name
        project.mkdir(exist_ok=True)
        os.link(wheel, project / wheel.name)
        metadata = read_metadata(wheel)
        (project / f"{wheel.name}.metadata").write_bytes(metadata)
        projects.setdefault(name, []).append(link(wheel.name, digest, hashlib.sha256(metadata).hexdigest()))
    for name, links in projects.items():
        (directory / name / "index.html").write_text(page(links))
    (directory / "index.html").write_text(page([f'<a href="{name}/">{name}</a>' for name in sorted(projects)]))


def read_metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        entries = (entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        return archive.read(next(entry for entry in entries if entry.count("/") == 1))


def link(filename: str, digest: str, metadata_digest: str) -> str:
    shown = html.escape(filename)
    reference = shown.replace("+", "%2B")
    known = f"sha256={metadata_digest}"
    metadata = f'data-core-metadata="{known}" data-dist-info-metadata="{known}"'
    return f'<a href="{reference}#sha256={digest}" {metadata}>{shown}</a>'


def page(links: Iterable[str]) -> str:
    body = "".join(f"{link}<br>\n" for link in links)
    head = '<meta name="pypi:repository-version" content="1.0">'
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{body}</body></html>\n"
