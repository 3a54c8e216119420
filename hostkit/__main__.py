"""The kit's command: `python3 KIT VERB [FILE]`, a JSON spec in the file or on standard input, JSON lines come out.

The last line is an event `result` or `error`; everything before it is told to the user as it comes. What goes to
systemd's journal is plain text. Units call it at each start of a service: what few verbs need is imported by those.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from hostkit import events
from hostkit.box_lock import box_lock
from hostkit.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

CHANGING = ("apt", "host", "build", "runtime", "models-home", "model", "release", "activate", "rollback", "restart",
            "undo", "resume", "hold", "unhold", "retire", "sweep", "remove")  # fmt: skip
# What only looks; what fills the store, where each file has a lock of its own (hostkit.store); and `job`, which holds
# none itself: the verb that it starts does. `lock` is the fleet's, with a guard of its own.
UNLOCKED = ("probe", "garbage", "job", "stock", "receive", "pull", "forget", "share", "unshare", "serve",
            "lock", "serving", "releases", "journal", "follow", "health", "model_check", "adoptable",
            "removable", "evidence", "doctor")  # fmt: skip
# What a unit runs as the services' user, who may not take the lock, and while an activation holds it.
OF_UNITS = ("before-start", "after-stop")
# Others, one after another, each with its own lock.
OF_MANY = ("questions",)
VERBS = UNLOCKED + OF_UNITS + OF_MANY + CHANGING


def main(argv: list | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    events.plain = events.to_journal()
    if len(arguments) not in (1, 2) or arguments[0] not in VERBS:
        events.error("the kit was called with {!r}".format(arguments), "use one of: " + ", ".join(VERBS))
        return 2
    os.umask(0o022)  # the services' user must be able to read what root puts there, however strict root's own is
    if arguments[0] == "questions":
        from hostkit import questions

        return questions.run(answer)
    return answer(arguments[0], lambda: read_file(arguments[1]) if len(arguments) == 2 else read_line())


def answer(verb: str, question: Callable[[], dict]) -> int:
    """Run a verb with the spec that `question` gives, and say its result or why there is none. Returns the status."""
    try:
        spec = question()
        module = importlib.import_module("hostkit." + verb.replace("-", "_"))
        if verb not in CHANGING:
            result = module.run(spec)
        else:
            with box_lock(verb):
                result = module.run(spec)
    except Failure as failure:
        events.error(failure.cause, failure.remedy, failure.everywhere)
        return 1
    except OSError as error:
        events.error(
            str(error), "see to what the message names (space, permissions, a missing file), then deploy again"
        )
        return 1
    except Exception as error:
        # Whatever it is, the controller gets it as one line with the place, and not as a traceback.
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        events.error("{!r} in {}, line {}".format(error, os.path.basename(place.filename), place.lineno), "report this")
        return 1
    events.result(result)
    return 0


def read_file(path: str) -> dict:
    with open(path, encoding="utf-8") as handle:
        try:
            return dict(json.load(handle))
        except ValueError as error:
            raise Failure("{} is no JSON: {}".format(path, error), "deploy this box: that puts its files right")


def read_line() -> dict:
    """One line of JSON; what follows it (the bytes of a file) is left for the verb to read."""
    line = "" if sys.stdin.isatty() else sys.stdin.buffer.readline().decode("utf-8")
    return dict(json.loads(line)) if line.strip() else {}


if __name__ == "__main__":
    sys.exit(main())
