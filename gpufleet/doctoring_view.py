"""A preflight for people: what is in order on one line for each box, a line for each thing that is not. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpufleet.doctoring import Box

STYLES = {"ok": "", "warning": "yellow", "error": "red"}


def lines(boxes: Iterable[Box]) -> Iterator[tuple[str, str]]:
    """(line, style)"""
    for box in boxes:
        fine = [f"{line.check} {line.cause}".rstrip() for line in box.lines if line.level == "ok"]
        if fine:
            yield f"{box.name}: ok: {'; '.join(fine)}", STYLES["ok"]
        for line in box.lines:
            if line.level != "ok":
                cause = line.cause if line.code else f"{line.check}: {line.cause}"
                remedy = f" Remedy: {line.remedy}." if line.remedy else ""
                yield f"{box.name}: {line.level}: {cause.rstrip('.')}.{remedy}", STYLES[line.level]


def summary(boxes: Sequence[Box]) -> str:
    """`3 boxes: 1 ok, 1 with warnings, 1 with errors. Nothing was changed.`"""
    counts: Counter[str] = Counter(box.level for box in boxes)
    words = {"ok": "ok", "warning": "with warnings", "error": "with errors"}
    said = ", ".join(f"{counts[level]} {word}" for level, word in words.items() if counts[level])
    total = sum(counts.values())
    return f"{total} box{'' if total == 1 else 'es'}: {said}. Nothing was changed."
