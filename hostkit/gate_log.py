"""What an engine wrote since it was started: its first error, the lines it owes, and those that must not be there."""

from __future__ import annotations

import re
import time
from itertools import islice
from typing import Iterable, Iterator, NamedTuple, Optional, Sequence

from hostkit import systemd
from hostkit.errors import Failure
from hostkit.gate_http import quoted
from hostkit.roots import Roots

MOST_LINES, LONGEST = 200_000, 2000  # more than any start writes; a line longer than that is cut
TRIES, TRY_SECONDS = 4, 1  # the journal takes lines in a moment after they are written


class Hint(NamedTuple):
    """What a line means for the owner. lasting: another start would end in the same way."""

    pattern: str
    remedy: str
    lasting: bool = False


HINTS = [
    Hint(r"InvalidCxxCompiler|No working C\+\+ compiler|g\+\+.*(not found|No such file)",
         "install g++ on the box (the stack's apt list names it)"),
    Hint(r"libnuma\.so\.1", "install libnuma1 on the box (the stack's apt list names it)", True),
    Hint(r"Address already in use", "stop what listens on that port, or give the instance another port"),
    Hint(r"OOM killer|Failed core proc\(s\): \{\}",
         "see `journalctl -k` for `Out of memory`: the box's memory and swap must hold what the engine loads; add swap "
         "or take other services off the box"),
    Hint(r"out of memory|OutOfMemoryError|No available memory for the cache blocks|larger than the maximum number of "
         r"tokens that can be stored in KV cache|is larger than the available KV cache memory",
         "lower gpu-memory-utilization, max-model-len or max-num-seqs"),
    Hint(r"unrecognized arguments: (.*)", "take that flag out of serve_args: this engine does not know it", True),
    Hint(r"gdn_prefill_backend is flashqla_legacy", "take gdn_prefill_backend out of additional-config, or serve by a "
         "stack that has FlashQLA", True),
    Hint(r"ModuleNotFoundError|cannot open shared object file",
         "deploy again: the runtime is not whole, or the stack's apt list lacks a library", True),
    Hint(r"Failed to (execute|locate executable)", "deploy again: the runtime is not where the unit expects it", True),
]  # fmt: skip
# What a process says of another one's failure, which has its own line before it.
EMPTY_WORDS = r"See root cause above|Failed core proc|[Ee]ngine core initialization failed|EngineCore failed to start"
BEGINNINGS = ("Starting ", "Started ")  # of systemd, the first lines of a start
PREFIX = r"^(\(\w+ pid=\d+\) )?(ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]*\] "  # of vLLM's logger; says nothing of why
MILD = r"\b(DEBUG|INFO|WARNING|WARN)\b"
NAMED = r"\b\w*(Error|Exception|Interrupt)(: |$)|\berror: "
CODE = r"\braise \w"  # a line of a traceback that shows the source
SEVERE = r"\b(ERROR|CRITICAL|FATAL)\b|Failed to |OOM killer|terminate called|Segmentation fault|core dumped"


def since(unit: str, invocations: Sequence[str], began: float) -> Iterator[str]:
    """The lines of a unit's starts, the oldest first; without any, those since `began` (seconds since the epoch).

    By the start and not by the time: nothing of the process before, and a clock that is put right changes nothing.
    """
    wanted = []
    for invocation in invocations:
        # What the process wrote, and what systemd says of it.
        wanted += ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation, "+"]
    found = False
    if wanted:
        for line in _journal(*wanted[:-1]):
            found = True
            yield line
    if not found:
        yield from systemd.log_since(unit, began)


def _journal(*matches: str) -> Iterator[str]:
    try:
        lines = Roots().lines("journalctl", "--no-pager", "-q", "-o", "cat", *matches)
        for number, line in enumerate(lines or ()):
            if number < MOST_LINES:  # read to its end all the same: a reader that stops leaves journalctl behind
                yield line[:LONGEST]
    except OSError:
        return


def latest(unit: str, invocations: Sequence[str], began: float, number: int = 20) -> list[str]:
    """The last lines of the newest start."""
    found = list(_journal("-n", str(number), "_SYSTEMD_INVOCATION_ID=" + invocations[-1])) if invocations else []
    return found or list(systemd.log_since(unit, began, number))


def first_error(lines: Iterable[str]) -> str:
    """The first line that names an error, as `reason`; without any, the last line, which may be how it ended."""
    kept = list(lines)
    last = next((line for line in reversed(kept) if line.strip()), "")
    return reason(kept) or quoted(last) or "it wrote nothing to the journal"


def reason(lines: Iterable[str]) -> str:
    """The first line that names an error: what comes after it mostly follows from it. Empty without any.

    Not what is no more than a warning, nor what speaks of the failure of another process.
    """
    severe, empty = "", ""
    told = (line for line in lines if line.strip())
    for line in told:
        if re.search(EMPTY_WORDS, line):
            empty = empty or line
        elif not re.search(MILD, line) and not re.search(CODE, line):
            if re.search(NAMED, line):
                # pydantic says on the next lines what is wrong
                more = islice(told, 2) if re.search(r"validation errors? for", line) else ()
                return quoted(" ".join([re.sub(PREFIX, "", line), *more]))
            if not severe and re.search(SEVERE, line):
                severe = line
    return quoted(re.sub(PREFIX, "", severe or empty))


def hint(text: str) -> Optional[Hint]:
    """What a line is known to mean."""
    return next((item for item in HINTS if re.search(item.pattern, text)), None)


def remedy(unit: str, lines: Iterable[str]) -> str:
    """What the log of a failing engine is known to mean, by its first error or else by any line; else where to read."""
    kept = list(lines)
    found = hint(first_error(kept)) or hint("\n".join(line for line in kept if not re.search(EMPTY_WORDS, line)))
    return found.remedy if found else "read `journalctl -u {}` on the box".format(unit)


def check(unit: str, invocations: Sequence[str], began: float, wanted: dict, whole: bool) -> list[str]:
    """Raise Failure for a line that must not be there, and for one that is owed and is not there.

    + wanted: {"promised": [{"line": regex, "means"}], "forbidden": [the same]}
    + whole: whether this start was seen from its beginning; of an older one the journal may have dropped lines: when it
      no longer has systemd's word that it starts, what else it lacks is only a warning
    Returns the warnings.
    """
    promised, forbidden = wanted.get("promised") or [], wanted.get("forbidden") or []
    missing = list(promised)
    for attempt in range(TRIES if promised or forbidden else 0):
        missing = list(promised)
        for number, line in enumerate(since(unit, invocations, began)):
            whole = whole or (number == 0 and line.startswith(BEGINNINGS))
            for item in forbidden:
                if re.search(item["line"], line):
                    raise Failure("the log says {!r}: {}".format(quoted(line), item["means"]), _look(unit))
            missing = [item for item in missing if not re.search(item["line"], line)]
        if not missing or not whole:
            break
        if attempt < TRIES - 1:
            time.sleep(TRY_SECONDS)
    if missing and whole:
        item = missing[0]
        raise Failure("no line of the log says {!r}: {}".format(item["line"], item["means"]), _look(unit))
    return [
        "no line of the log says {!r}; it was started earlier, and the journal may have dropped it".format(item["line"])
        for item in missing
    ]


def _look(unit: str) -> str:
    return (
        "read `journalctl -u {}` on the box; what the log must say is in the stack's page, under `log`, and a page of "
        "your own may say otherwise".format(unit)
    )
