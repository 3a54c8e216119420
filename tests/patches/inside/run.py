"""Runs the checks of one file inside the engine's environment: one line of JSON, what went wrong by function.

PYTHON run.py gdn_checks
PYTHON run.py --import MODULE…      # only import these modules of the engine
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator

import engine


def named(arguments: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    if arguments[0] == "--import":
        for module in arguments[1:]:
            yield module, lambda module=module: engine.imported_here(module)
    else:
        for name, function in vars(importlib.import_module(arguments[0])).items():
            if name.startswith("check_"):
                yield name, function


def why(function: Callable[[], object]) -> str:
    try:
        function()
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    results = {name: why(function) for name, function in named(sys.argv[1:])}
    print(json.dumps(results), flush=True)
