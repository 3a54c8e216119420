"""The ways a call or a configuration can be wrong, and the exit codes everything here ends with."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from gpufleet import masking

DONE, BOX_FAILED, WRONG, REFUSED, LOCKED, WOULD_CHANGE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


class ConfigError(Exception):
    """The configuration is wrong: one line a problem, each naming the file, the key and what to do.

    Problems quote what was given: a login in an address is hidden.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = [masking.login(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class BoxError(Exception):
    """Something failed on one box; the others go on.

    + everywhere: the kit says that a like box would fail with the same
    """

    def __init__(self, box: str, cause: str, remedy: str, everywhere: bool = False) -> None:
        super().__init__(f"{box}: {cause}. {remedy[:1].upper()}{remedy[1:]}.")
        self.box, self.cause, self.remedy, self.everywhere = box, cause, remedy, everywhere


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or the list of them when none is near."""
    names = sorted(known)
    close = get_close_matches(str(word), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
