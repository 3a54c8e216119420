"""Makes a lock: uv finds the versions, the best wheel of each is pinned, and its metadata says what it needs.

Only metadata is downloaded. No address is written into the lock: which index is used is the owner's matter, the hash
says what must come from it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpufleet.errors import ConfigError
from gpufleet.wheelhouse import needs
from gpufleet.wheelhouse.lock import Lock, Pin, render
from gpufleet.wheelhouse.lock_input import Input
from gpufleet.wheelhouse.lock_target import Target
from gpufleet.wheelhouse.metadata import MetadataError, metadata
from gpufleet.wheelhouse.places import uv_indexes
from gpufleet.wheelhouse.tags import best, ranked

READERS = 8  # metadata files that are read at once


def make(target: Target, python: str, indexes: Sequence[str], say: Callable[[str], None]) -> str:
    """The text of a lock for a Python.

    + indexes: options for uv that name further places with wheels
    Raises ConfigError when uv finds no such set, or a package cannot be read.
    """
    source = target.input()
    say(f"{target.name}, Python {python}: asking uv for the versions")
    packages = resolve(target, source, python, indexes)["packages"]
    versions: dict[str, str] = {canonicalize_name(package["name"]): package["version"] for package in packages}
    for name, version in target.made.items():
        if (taken := versions.get(name, version)) != version:
            page = f"stacks/{target.stack.name}.yaml has {version}: write {name}=={version}"
            raise ConfigError([f"locks/{target.name}.in: uv takes {name} {taken}, but {page}"])
    known = ranked(python, source.glibc)
    chosen: dict[str, dict[str, Any]] = {
        canonicalize_name(package["name"]): wheel_of(package, known) for package in packages
    }
    say(f"{target.name}, Python {python}: reading what {len(chosen)} packages need")
    read = partial(_requirements, (*indexes, *uv_indexes()))
    with ThreadPoolExecutor(READERS) as readers:
        found = dict(zip(chosen, readers.map(read, chosen.values()), strict=True))
    remaining = {name: target.remaining(name, its) for name, its in found.items()}
    asked = needs.reached(source.requirements, remaining, python)
    said = {name: tuple(sorted(map(str, asked.get(name, ())))) for name in versions}
    pins = [
        Pin(package["name"], versions[name], wheel["hashes"]["sha256"], wheel["name"], wheel["size"], said[name])
        for package, (name, wheel) in zip(packages, chosen.items(), strict=True)
        if name not in source.repacked
    ]
    repacked = {name: (versions[name], its) for name, its in said.items() if name in source.repacked}
    title = f"Lock of {target.name} for Python {python} on manylinux_2_{source.glibc}_x86_64"
    return render(title, Lock(pins, target.digest(source), repacked))


def resolve(target: Target, source: Input, python: str, indexes: Sequence[str]) -> dict[str, Any]:
    """Ask uv for the set of versions and the wheels that fit, as a pylock document."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "pylock.toml")
        command = [str(uv()), "pip", "compile", "--quiet", "--only-binary", ":all:", "--format", "pylock.toml"]
        command += ["--python-version", python, "--python-platform", source.platform, "--no-python-downloads"]
        command += ["--exclude-newer", source.exclude_newer]
        for name, day in (line.split() for line in source.newer):
            command += ["--exclude-newer-package", f"{name}={day}"]
        lists = {"--excludes": sorted(source.drop), "--overrides": source.override, "--constraints": source.constrain}
        for option, lines in lists.items():
            given = Path(folder, f"{option.strip('-')}.txt")
            given.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            command += [option, str(given)]
        command += [*indexes, "--output-file", str(answer), str(target.input_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = "\n".join(f"  {line}" for line in done.stderr.strip().splitlines())
            raise ConfigError(
                [f"locks/{target.name}.in: uv finds no set of packages for Python {python}; mend the file:\n{said}"]
            )
        return tomllib.loads(answer.read_text(encoding="utf-8"))


def uv() -> Path:
    """The uv of this Python's environment, else that on PATH. Raises ConfigError when there is none."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise ConfigError(["there is no uv: install it with `pip install uv`, beside gpufleet or on PATH"])
    return Path(found)


def wheel_of(package: dict[str, Any], known: dict[Any, int]) -> dict[str, Any]:
    """The best wheel of a package of a pylock document, with its `name`, and its `size` also where it is a file."""
    label = f"{package['name']} {package['version']}"
    wheels = {unquote(urlsplit(wheel["url"]).path.rpartition("/")[2]): wheel for wheel in package.get("wheels") or []}
    wheels = {filename: wheel for filename, wheel in wheels.items() if _is_wheel(filename)}
    name = best(wheels, known)
    if name is None:
        raise ConfigError([f"{label}: none of its wheels fits ({', '.join(wheels) or 'it has none'}); drop or pin it"])
    wheel = wheels[name]
    parts = urlsplit(wheel["url"])
    size = Path(unquote(parts.path)).stat().st_size if parts.scheme == "file" else wheel.get("size")
    if not isinstance(size, int) or "sha256" not in wheel["hashes"]:
        raise ConfigError([f"{label}: the index says no size or no sha256 of {name}; use one that says both (PEP 700)"])
    return {**wheel, "name": name, "size": size}


def _is_wheel(filename: str) -> bool:
    """Whether pip could install a file of that name: indexes hold old ones with names that were never right."""
    try:
        parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    return True


def _requirements(indexes: tuple[str, ...], wheel: dict[str, Any]) -> list[Requirement]:
    """What a wheel asks for. + indexes: uv's, for their logins"""
    try:
        return needs.requirements(metadata(wheel["url"], wheel["size"], indexes))
    except (MetadataError, InvalidRequirement) as error:
        said = f"{wheel['name']}: its metadata cannot be read: {error}; try again, or with another index"
        raise ConfigError([said]) from None
