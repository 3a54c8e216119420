"""The kit's command: `python3 KIT VERB`, a JSON spec on standard input, JSON lines on standard output.

The last line is an event `result` or `error`; everything before it is told to the user as it comes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback

from hostkit import events
from hostkit.errors import Failure
from hostkit.lock import box_lock

CHANGING = ("apt", "build", "runtime", "model", "release", "activate", "retire", "sweep")
# What only looks; what fills the store, where each file has a lock of its own (hostkit.store); and `job`, which holds
# none itself: the verb that it starts does.
UNLOCKED = (
    *("probe", "garbage", "releases", "journal", "follow", "health"),
    *("job", "stock", "receive", "pull", "forget", "share", "unshare", "serve"),
)


def main(argv: list | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0] not in UNLOCKED + CHANGING:
        events.error("the kit was called with {!r}".format(arguments), "use one of: " + ", ".join(UNLOCKED + CHANGING))
        return 2
    verb = arguments[0]
    os.umask(0o022)  # the services' user must be able to read what root puts there, however strict root's own is
    try:
        # One line of JSON; what follows it (the bytes of a file) is left for the verb to read.
        line = "" if sys.stdin.isatty() else sys.stdin.buffer.readline().decode("utf-8")
        spec = json.loads(line) if line.strip() else {}
        module = importlib.import_module("hostkit." + verb)
        if verb in UNLOCKED:
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
        place = traceback.extract_tb(error.__traceback__)[-1]
        events.error("{!r} in {}, line {}".format(error, os.path.basename(place.filename), place.lineno), "report this")
        return 1
    events.result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
