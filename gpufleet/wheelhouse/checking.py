"""Whether series apply to the genuine files of wheels and repositories, or to those of another version."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from gpufleet import wheel
from gpufleet.parts import Patched, Source, Wheel
from gpufleet.patches import PatchError, Seen, Series, check
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import series
from gpufleet.wheelhouse.git import Git, GitError
from gpufleet.wheelhouse.pack import ODD, WheelError, cause, sha256_of
from gpufleet.wheelhouse.source import genuine

# For another version any wheel for Linux will do: only its Python is read.
PLATFORMS = ["manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 42)), "linux_x86_64"]
CANNOT = (WheelError, GitError, PatchError, OSError, *ODD)

Read = Callable[[str], bytes | None]


@dataclass(frozen=True)
class Checked:
    """One series on one tree. + problem: why there is nothing to see"""

    title: str
    seen: list[Seen] = field(default_factory=list)
    problem: str | None = None

    @property
    def failed(self) -> bool:
        return self.problem is not None or any(item.error for item in self.seen)

    def lines(self) -> Iterator[str]:
        """What to print of it."""
        yield self.title
        if self.problem:
            yield f"  cannot be checked: {self.problem}"
        for patch, group in groupby(self.seen, key=lambda item: item.patch):
            items = list(group)
            yield f"  {patch}: {_word(items)}"
            for item in items:
                place = ", ".join(
                    [*([item.target] if item.target else []), *([f"hunk {item.hunk}"] if item.hunk else [])]
                )
                if item.error:
                    line = f" (line {item.error.line} of the patch)" if item.error.line else ""
                    yield f"    {place or 'the patch'}{line}: {item.error.reason}"
                elif item.moved:
                    yield f"    {place}: {item.moved:+d} lines from where it was made"


def _word(items: Sequence[Seen]) -> str:
    """What became of a patch."""
    hunks = "1 hunk" if len(items) == 1 else f"{len(items)} hunks"
    failed = [item for item in items if item.error]
    if not failed:
        return "moved" if any(item.moved for item in items) else f"applies, {hunks}"
    return f"FAILS, {len(failed)} of {hunks}" if all(item.hunk for item in items) else "FAILS"


@dataclass(frozen=True)
class Places:
    """Where genuine files come from.

    + folders: local folders that may have the wheels
    + cache: the controller's folder of wheels
    + mirror: the setting `mirrors.files`
    """

    git: Git
    cache: Path
    folders: Sequence[Path] = ()
    mirror: str | None = None

    def published(self, entry: Wheel) -> Path:
        """The wheel a page names, by its sha256. Raises WheelError."""
        for folder in self.folders:
            found = folder / entry.filename
            if found.is_file():
                if sha256_of(found) == entry.sha256:
                    return found
                raise WheelError(f"{found} has another sha256 than the stack says. Take it away.")
        return wheel.fetch(entry, self.cache, self.mirror)

    def version(self, entry: Wheel, version: str, python: str) -> Path:
        """A wheel of another version, by pip. Raises WheelError.

        + python: `3.12`
        """
        into = self.cache / "against" / f"{canonicalize_name(entry.name)}-{version}"
        if there := sorted(into.glob("*.whl")):
            return there[0]
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into.parent, prefix=".fetch-") as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command += ["--dest", folder, "--implementation", "cp", "--python-version", python]
            for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
                command += ["--abi", abi]
            command += [part for platform in PLATFORMS for part in ("--platform", platform)]
            command += [part for place in self.folders for part in ("--find-links", str(place.absolute()))]
            done = subprocess.run([*command, f"{entry.name}=={version}"], check=False, capture_output=True, text=True)
            got = sorted(Path(folder).glob("*.whl"))
            if done.returncode or not got:
                said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no wheel")
                raise WheelError(
                    f"{entry.name} {version}: pip could not download a wheel: {said}. Look whether there is such a "
                    "version and this machine reaches an index (PIP_INDEX_URL), or give the path of a wheel."
                )
            into.mkdir(exist_ok=True)
            got[0].replace(into / got[0].name)
        return into / got[0].name


def own(stacks: Sequence[Stack], places: Places) -> Iterator[Checked]:
    """Every series of these stacks on what its page pins."""
    for stack in stacks:
        for entry in patched(stack):
            yield _on_wheel(stack, entry, places, lambda entry=entry: places.published(entry))  # type: ignore[misc]
        for source in stack.sources:
            yield _on_source(stack, source, places)


def against(stack: Stack, entry: Wheel, places: Places, found: Callable[[], Path]) -> Checked:
    """The series of one wheel on another wheel of the same distribution."""
    return _on_wheel(stack, entry, places, found)


def patched(stack: Stack) -> list[Wheel]:
    return [entry for entry in stack.wheels if entry.patches or entry.patches_from]


def engine_wheel(stack: Stack) -> Wheel | None:
    """The patched wheel that is the engine, by which a bare version is meant; None when nothing is patched."""
    found = patched(stack)
    return next((entry for entry in found if (entry.rename or entry.name) == stack.engine), found[0] if found else None)


def is_of(path: Path, entry: Wheel) -> bool:
    """Whether a wheel is of this distribution. Raises packaging's InvalidWheelFilename."""
    return bool(parse_wheel_filename(path.name)[0] == canonicalize_name(entry.name))


def _on_wheel(stack: Stack, entry: Wheel, places: Places, found: Callable[[], Path]) -> Checked:
    title = f"{stack.name}: {_named(entry)} on {entry.name} {entry.version}"
    try:
        wanted = series.of(entry, stack.files / "patches", places.git)
        path = found()
        title = f"{stack.name}: {_named(entry)} on {path.name}"
        with zipfile.ZipFile(path) as packed:
            return Checked(title, check(wanted, lambda name: _read(packed, name)))
    except CANNOT as error:
        return Checked(title, problem=cause(error))


def _on_source(stack: Stack, source: Source, places: Places) -> Checked:
    title = f"{stack.name}: {_named(source)} on {source.name} at {source.commit[:7]}"
    try:
        files = genuine(source, places.git)
        wanted: Series = series.of(source, stack.files / "patches", places.git)
        return Checked(title, check(wanted, files.get))
    except CANNOT as error:
        return Checked(title, problem=cause(error))


def _named(part: Patched) -> str:
    if part.patches_from:
        return f"patches of {part.patches_from.git} at {part.patches_from.commit[:7]}"
    return f"patches {part.patches}" if part.patches else "no patches"


def _read(packed: zipfile.ZipFile, path: str) -> bytes | None:
    try:
        return packed.read(path)
    except KeyError:
        return None
