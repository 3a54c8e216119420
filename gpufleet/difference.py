"""What a deploy would change in the files of a release: one unified diff for each file, secrets hidden. No I/O."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet import masking

MANIFEST = "manifest.json"
# What a release is made of besides its files: of the manifest only this is worth reading, the rest are hashes of files.
SHOWN = ("links", "model", "runtime")


@dataclass(frozen=True)
class FileChange:
    """One file that would be another; `lines` are those of the diff, its two header lines included."""

    path: str
    kind: Literal["added", "removed", "changed"]
    lines: list[str]


def between(before: Mapping[str, str], after: Mapping[str, str]) -> list[FileChange]:
    """The files that differ, by path; the manifest last, and only with what other files do not show."""
    paths = sorted({*before, *after}, key=lambda path: (path == MANIFEST, path))
    found = (_file(path, before.get(path), after.get(path)) for path in paths)
    return [change for change in found if change is not None]


def of_release(there: Mapping[str, Any], after: Mapping[str, str], unit: str) -> list[FileChange]:
    """What staging and switching to `after` changes on a box.

    + there: the answer of the kit's verb `releases`
    + unit: path of the installed unit, whose text counts where somebody edited it
    """
    current = (there.get("releases") or {}).get(there.get("current") or "", {}).get("files") or {}
    name, installed = unit.rsplit("/", 1)[-1], there.get("unit")
    changes = between(current, after)
    if installed is not None and installed != current.get(name) and installed != after.get(name):
        edited = _file(unit, installed, after.get(name))
        changes += [edited] if edited else []
    return changes


def _file(path: str, before: str | None, after: str | None) -> FileChange | None:
    if before == after:
        return None
    old, new = _readable(path, before), _readable(path, after)
    if old is not None and new is not None:
        old, new = masking.pair(old, new)
    elif old is not None:
        old = masking.pair(old, "")[0]
    elif new is not None:
        new = masking.pair(new, "")[0]
    lines = list(
        difflib.unified_diff(
            _lines(old),
            _lines(new),
            "/dev/null" if before is None else f"a/{path.lstrip('/')}",
            "/dev/null" if after is None else f"b/{path.lstrip('/')}",
            lineterm="",
        )
    )
    if not lines:
        return None
    return FileChange(path, "added" if before is None else "removed" if after is None else "changed", lines)


def _lines(source: str | None) -> list[str]:
    return [] if source is None else source.splitlines()


def _readable(path: str, source: str | None) -> str | None:
    """The manifest without the hashes; a file as it is."""
    if path != MANIFEST or source is None:
        return source
    try:
        parts = json.loads(source)
    except ValueError:
        return source
    if not isinstance(parts, dict):
        return source
    return json.dumps({key: parts[key] for key in SHOWN if key in parts}, indent=1, sort_keys=True) + "\n"


def summary(changes: Iterable[FileChange]) -> str:
    """`serve.yaml changed, serve.env added`"""
    return ", ".join(f"{change.path} {change.kind}" for change in changes)
