"""Many verbs by one process: Python, and the modules that verbs share, are there once for all calls of a run.

Standard input has one question a line: `{"verb": …, "spec": …}`. What the verb says comes out as it does when the verb
is called alone, then an event `end` with its exit status and the last of what it wrote to standard error. Each question
is answered by a child, which cannot leave anything behind in memory, and whose end, however bad, is not the others'.
The first line that comes out is an event `ready`: sudo, where it is asked for, has let it through. Where Python or the
kit is no more what it was, the answer is an event `again` and nothing else: a new process is to be asked.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

from hostkit import events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Answer = Callable[[str, Callable[[], dict]], int]

IDLE_SECONDS = 3600  # a controller that lost its power does not say that it is gone
SAID = 4096  # bytes of standard error


def run(answer: Answer) -> int:
    """Answer until standard input ends; `answer`: see hostkit.__main__."""
    made_of = _made_of()
    events.emit("ready")
    while True:
        signal.alarm(IDLE_SECONDS)
        line = sys.stdin.buffer.readline()
        signal.alarm(0)
        if not line:
            return 0
        if made_of != _made_of():
            events.emit("again")
            return 0
        question = json.loads(line)
        verb, spec = question["verb"], question["spec"]
        _prepare(verb)
        said = os.memfd_create("said")
        try:
            events.emit("end", **_end(_child(answer, verb, spec, said), said))
        finally:
            os.close(said)


def _made_of() -> list:
    """What tells whether it can go on: modules that come later would be of an upgraded Python, and a process that has
    the kit in memory would make anew what `remove` took away with it."""
    found: list = []
    for path in (sys.argv[0], sys.executable, os.__file__):
        try:
            known = os.stat(path)
            found.append((known.st_dev, known.st_ino, known.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def _prepare(verb: str) -> None:
    """Import it here, for this question and those that come."""
    try:
        importlib.import_module("hostkit." + verb.replace("-", "_"))
    except Exception:  # noqa: S110 - the child meets the same, and says it
        pass


def _child(answer: Answer, verb: str, spec: dict, said: int) -> int:
    """Answer one question in a process of its own; returns its status as os.waitpid has it."""
    try:
        pid = os.fork()
    except OSError as error:  # no more processes, or no more memory
        events.error("{} cannot be started: {}".format(verb, error), "see what the box is busy with, then deploy again")
        return 1 << 8
    if pid:
        return os.waitpid(pid, 0)[1]
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(said, 2)
        status = answer(verb, lambda: spec)
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _end(status: int, said: int) -> dict[str, Any]:
    if status:
        sys.stdout.write("\n")  # it may have been in the middle of a line
    size = os.fstat(said).st_size
    text = os.pread(said, SAID, max(0, size - SAID)).decode("utf-8", "replace")
    return {"status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status), "said": text}
