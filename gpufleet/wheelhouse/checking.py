"""Whether series apply to the genuine files of wheels, repositories, source archives, or to another version's."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from gpufleet import sdist
from gpufleet.parts import Build, Patched, Source, Wheel
from gpufleet.patches import PatchError, Series, read_series
from gpufleet.patching import Seen, check
from gpufleet.sdist import SdistError
from gpufleet.settings import Mirrors
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import prepare, release, series
from gpufleet.wheelhouse.git import Git, GitError
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item, archive_item, stock_item
from gpufleet.wheelhouse.pack import ODD, WheelError, sha256_of
from gpufleet.wheelhouse.places import places
from gpufleet.wheelhouse.prepare import Say
from gpufleet.wheelhouse.source import genuine
from gpufleet.wheelhouse.store import Store

CANNOT = (FetchError, WheelError, GitError, PatchError, SdistError, OSError, *ODD)

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
    """Where genuine files come from: folders that may have them, the controller's store, else outside into the store.

    + folders: files are used where they lie
    + offline: nothing is asked for outside
    + say: is told what is fetched
    """

    store: Store
    mirrors: Mirrors
    folders: Sequence[Path] = ()
    offline: bool = False
    say: Say = lambda text: None

    @property
    def git(self) -> Git:
        return Git(self.store.git, self.mirrors.git, self.offline)

    def published(self, item: Item) -> Path:
        """The file that a page names by its sha256. Raises FetchError."""
        for folder in self.folders:
            found = folder / item.filename
            if found.is_file():
                if sha256_of(found) == item.sha256:
                    return found
                raise FetchError(f"{found} has another sha256 than the stack says. Take it away.")
        if self.offline and not self.store.has(item):
            raise FetchError(f"{item.filename}: {self._lacks()}")
        prepare.bring([item], self.store, self.mirrors, self.say)
        return self.store.path(item)

    def version(self, stack: Stack, entry: Wheel, version: str) -> Path:
        """A wheel of another version than the page's. Raises FetchError."""
        origin, python = FromIndex(entry.name, version, stack.torch_index), stack.python[0]
        kept = sorted(path.parent for path in self.store.root.glob("??/*/*.whl"))
        if path := release.inside([*self.folders, *kept], origin, python):
            return path
        if self.offline:
            raise FetchError(f"{entry.name} {version}: {self._lacks()}")
        return self.published(release.find(origin, python, places(self.mirrors)))

    def _lacks(self) -> str:
        return f"not in {self.store.root}, and fetch.offline is set. Take that out, or give --find-links FOLDER."


def own(stacks: Sequence[Stack], places: Places) -> Iterator[Checked]:
    """Every series of these stacks on what its page pins."""
    for stack in stacks:
        for entry in patched(stack):
            item = stock_item(entry, stack.torch_index)
            yield _on_wheel(stack, entry, places, lambda item=item: places.published(item))  # type: ignore[misc]
        for source in stack.sources:
            yield _on_source(stack, source, places)
        if stack.build and stack.build.patches:
            yield _on_archive(stack, stack.build, stack.build.patches, places)


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
        return Checked(title, problem=str(error))


def _on_source(stack: Stack, source: Source, places: Places) -> Checked:
    title = f"{stack.name}: {_named(source)} on {source.name} at {source.commit[:7]}"
    try:
        files = genuine(source, places.git)
        wanted: Series = series.of(source, stack.files / "patches", places.git)
        return Checked(title, check(wanted, files.get))
    except CANNOT as error:
        return Checked(title, problem=str(error))


def _on_archive(stack: Stack, build: Build, name: str, places: Places) -> Checked:
    title = f"{stack.name}: patches {name} on {build.filename}"
    try:
        wanted = read_series(stack.files / "patches" / name)
        with places.published(archive_item(build)).open("rb") as packed:
            _, files = sdist.read(packed, build.filename)
        return Checked(title, check(wanted, lambda path: files[path].content if path in files else None))
    except CANNOT as error:
        return Checked(title, problem=str(error))


def _named(part: Patched) -> str:
    if part.patches_from:
        return f"patches of {part.patches_from.git} at {part.patches_from.commit[:7]}"
    return f"patches {part.patches}" if part.patches else "no patches"


def _read(packed: zipfile.ZipFile, path: str) -> bytes | None:
    try:
        return packed.read(path)
    except KeyError:
        return None
