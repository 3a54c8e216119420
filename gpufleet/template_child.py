"""A process of its own that renders chat templates, for a template may loop or grow for ever.

`python -m gpufleet.template_child`: a JSON object a line on stdin, one a line on stdout. Asked {"text", "values"} it
answers {"text"}, without "values" {"names"} that the template takes; or {"error"}. What takes too long ends it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

from gpufleet.checks import jinja

SECONDS = 5.0  # of computing, for one template; the longest of Qwen's takes 20 ms
MEMORY = 1 << 30  # bytes of address space; Python and Jinja take 100 MB
LONGEST = 4 << 20  # characters of what is rendered


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks; this ends when nobody does any more
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # SIGVTALRM ends the process, in the midst of anything
        said = answer(json.loads(line))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        if "values" not in asked:
            return {"names": sorted(jinja.variables(asked["text"]))}
        found = jinja.render(asked["text"], asked["values"])
    except jinja.TemplateError as error:
        return {"error": str(error)}
    return {"text": found} if len(found) <= LONGEST else {"error": f"makes {len(found)} characters of it"}


if __name__ == "__main__":
    main()
