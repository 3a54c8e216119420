"""Applies a series of patches to files in memory, strictly.

`patch` guesses: it ignores context that differs a little and puts a hunk where it seems to fit. An engine patched by a
guess starts and serves wrong tokens. Here every context and removed line must match, a hunk may only move to the one
place where it matches, and either the whole series applies or nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from unidiff import Hunk, PatchedFile, PatchSet
from unidiff.constants import DEV_NULL, LINE_TYPE_ADDED, LINE_TYPE_CONTEXT, LINE_TYPE_NO_NEWLINE, LINE_TYPE_REMOVED
from unidiff.errors import UnidiffParseError

from gpufleet.patches import Patch, PatchError, Series

# What may follow a finished hunk and begin like one of its lines: the next file's header, the end of a mailed patch.
AFTER_A_HUNK = re.compile(r"--- \S|-- ?$")


@dataclass(frozen=True)
class Applied:
    """The files a series touched (None: removed), and a line for each hunk that had to move."""

    files: dict[str, bytes | None]
    moved: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Seen:
    """What became of one hunk; without `hunk` of a whole file or patch."""

    patch: str
    target: str | None = None
    hunk: int | None = None
    moved: int = 0  # lines from where it was made
    error: PatchError | None = None


def apply(series: Series, read: Callable[[str], bytes | None]) -> Applied:
    """Apply a series to the tree whose files `read` gives (None: no such file); on a PatchError nothing is applied."""
    moved: list[str] = []

    def note(seen: Seen) -> None:
        if seen.error:
            raise seen.error
        if seen.moved:
            place = f"{seen.patch}: {seen.target}, hunk {seen.hunk}"
            moved.append(f"{place}: applied {seen.moved:+d} lines from where it was made")

    return Applied(_apply(series, read, note), moved)


def check(series: Series, read: Callable[[str], bytes | None]) -> list[Seen]:
    """What would become of each hunk of a series; what fails is left out, and the rest goes on."""
    found: list[Seen] = []
    _apply(series, read, found.append)
    return found


def _apply(
    series: Series, read: Callable[[str], bytes | None], note: Callable[[Seen], None]
) -> dict[str, bytes | None]:
    touched: dict[str, bytes | None] = {}
    for patch in series.patches:
        try:
            changes = list(_parse(patch))
        except PatchError as error:
            note(Seen(patch.name, error.target, error.hunk, error=error))
            continue
        for change in changes:
            try:
                target = _target(patch, change)
                before = touched[target] if target in touched else read(target)
                touched[target] = _change(patch, change, target, before, note)
            except PatchError as error:
                note(Seen(patch.name, error.target, error=error))
    return touched


def _parse(patch: Patch) -> PatchSet:
    try:
        changes = PatchSet(_lines(patch.text))
    except (UnidiffParseError, ValueError) as error:  # the latter for numbers longer than Python reads
        raise PatchError(patch.name, f"not a unified diff: {str(error).strip()}") from None
    if not any(len(change) for change in changes):
        raise PatchError(patch.name, "holds no change")
    text = patch.text.split("\n")
    # unidiff skips what it does not know; a damaged hunk must not be skipped.
    if sum(line.startswith("@@") for line in text) != sum(len(change) for change in changes):
        raise PatchError(patch.name, "a hunk header (@@ …) is damaged or stands before the first file")
    for change in changes:
        for number, hunk in enumerate(change, 1):
            if not len(hunk):
                raise PatchError(patch.name, "the hunk has no lines", target=change.path, hunk=number)
            last = max((line.diff_line_no for line in hunk if line.diff_line_no is not None), default=0)
            after = text[last] if last < len(text) else ""
            if after[:1] in ("+", "-", " ") and not AFTER_A_HUNK.match(after):
                raise PatchError(
                    patch.name,
                    "the hunk has more lines than its header counts",
                    target=change.path,
                    hunk=number,
                    line=last + 1,
                )
    return changes


def _target(patch: Patch, change: PatchedFile) -> str:
    """The one path a file section is about, inside the tree."""
    sides = [(change.source_file, "a/"), (change.target_file, "b/")]
    names = {side.removeprefix(prefix) for side, prefix in sides if side != DEV_NULL and side.startswith(prefix)}
    if change.is_binary_file or len(change) == 0:
        raise PatchError(
            patch.name, "only changes of text are supported (no binary file, rename or mode)", target=change.path
        )
    if len(names) != 1 or any(side != DEV_NULL and not side.startswith(prefix) for side, prefix in sides):
        raise PatchError(
            patch.name,
            f"expected --- a/PATH and +++ b/PATH of one path, found {change.source_file} and {change.target_file}",
        )
    (name,) = names
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise PatchError(patch.name, "the path leaves the tree", target=name)
    return name


def _change(
    patch: Patch, change: PatchedFile, target: str, before: bytes | None, note: Callable[[Seen], None]
) -> bytes | None:
    """One file with all its hunks applied that can be; `note` hears of each, and may raise."""
    created, removed = change.source_file == DEV_NULL, change.target_file == DEV_NULL
    if created and before is not None:
        raise PatchError(patch.name, "the file to create is there already", target=target)
    if not created and before is None:
        raise PatchError(patch.name, "no such file in the tree", target=target)
    old = _lines((before or b"").decode("utf-8", "surrogateescape"))
    new: list[str] = []
    done = shift = 0
    failed = False
    for number, hunk in enumerate(change, 1):
        wanted, replacement = _sides(hunk)
        try:
            at = _place(patch, hunk, number, target, old, wanted, done, shift)
            if not "".join(replacement or "\n").endswith("\n") and at + len(wanted) != len(old):
                reason = f"ends the file without a newline, but the file goes on after line {at + len(wanted)}"
                raise PatchError(patch.name, reason, target=target, hunk=number)
        except PatchError as error:
            note(Seen(patch.name, target, number, error=error))
            failed = True
            continue
        shift = at - max(hunk.source_start - 1, 0)
        note(Seen(patch.name, target, number, moved=shift))
        new += old[done:at] + replacement
        done = at + len(wanted)
    new += old[done:]
    if removed and not failed:
        if new:
            raise PatchError(
                patch.name, f"the file to remove has {len(new)} lines the patch does not know", target=target
            )
        return None
    return "".join(new).encode("utf-8", "surrogateescape")


def _place(
    patch: Patch, hunk: Hunk, number: int, target: str, old: list[str], wanted: list[str], first: int, shift: int
) -> int:
    """The index in `old` where a hunk belongs: where it says, or the one other place that matches."""
    header = min(line.diff_line_no for line in hunk if line.diff_line_no is not None) - 1
    expected = max(hunk.source_start - 1, 0) + shift
    if not wanted:
        if old:
            raise PatchError(patch.name, "adds lines without any context", target=target, hunk=number, line=header)
        return 0
    if expected >= first and old[expected : expected + len(wanted)] == wanted:
        return expected
    places = [at for at in range(first, len(old) - len(wanted) + 1) if old[at : at + len(wanted)] == wanted]
    if len(places) == 1:
        return places[0]
    if places:
        lines = ", ".join(str(at + 1) for at in places)
        raise PatchError(
            patch.name,
            f"matches at lines {lines} but not where it says; make it anew",
            target=target,
            hunk=number,
            line=header,
        )
    raise PatchError(patch.name, _difference(old, wanted, first, expected), target=target, hunk=number, line=header)


def _difference(old: list[str], wanted: list[str], first: int, expected: int) -> str:
    """Why lines do not match: the first that differs where most of them do, of equals nearest to where they should."""

    def fits(at: int) -> int:
        return sum(line == old[at + offset] for offset, line in enumerate(wanted) if 0 <= at + offset < len(old))

    places = [expected, *range(first, len(old))] if expected >= first else list(range(first, len(old) + 1))
    best = max(places, key=lambda at: (fits(at), -abs(at - expected)))
    at, line = next((at, line) for at, line in enumerate(wanted, best) if not at < len(old) or old[at] != line)
    there = repr(old[at]) if at < len(old) else "the end of the file"
    return f"does not match: at line {at + 1} it needs {line!r}, the file has {there}"


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """A hunk's lines before and after, with the newline that the mark `\\ No newline at end of file` takes away."""
    before: list[str] = []
    after: list[str] = []
    last: list[list[str]] = []
    for line in hunk:
        if line.line_type == LINE_TYPE_NO_NEWLINE:
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif line.line_type in (LINE_TYPE_CONTEXT, LINE_TYPE_REMOVED, LINE_TYPE_ADDED):
            last = [before] * (line.line_type != LINE_TYPE_ADDED) + [after] * (line.line_type != LINE_TYPE_REMOVED)
            for side in last:
                side.append(line.value)
    return before, after


def _lines(text: str) -> list[str]:
    """Split at newlines only: str.splitlines also splits at form feeds and more, which sources hold."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
