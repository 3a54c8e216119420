"""Makes the table of an engine: the flags its server takes and the variables of its own it reads, asked of the engine.

Run it with a python that has the engine, from the repository:

    tools/parser-env vllm-0.27.1 FOLDER        # or vllm-0.24.0, lmdeploy-0.18.0: the engine and what its parser imports
    FOLDER/bin/python files/engines/make.py    # writes vllm-0.27.1.txt beside itself, or into a folder that is named

The table is made from the engine's own argparse parser, so it says what the engine takes, not what its manual says.
gpufleet/engines.py reads it. Plain text, since every plan reads it and a review should see one line a flag:

    # a comment
    name | kind | choices | other names
    $VARIABLE

- kind: `switch` (takes no value), `switch/no` (has a `no-` form too), `value` (one text or number), `commas` (one text,
  its parts joined by commas), `list` (one or more values), `json` (a mapping).
- choices, by spaces: the only values the engine takes. For its parsers of tool calls and of reasoning: its own ones.
- other names, by spaces: aliases of the flag, short ones with their dash. A configuration file can have long ones only.
"""

from __future__ import annotations

import argparse
import mmap
import re
import sys
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path

Choices = dict[str, list[str]]  # of flags whose choices the parser itself does not know


def vllm() -> tuple[argparse.ArgumentParser, Choices, set[str]]:
    """The parser of `vllm serve`, and the VLLM_ variables that vLLM takes without a warning."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    # A CUDA build on a machine without a GPU knows no device, and the parser's defaults need one. No flag does.
    if vllm.platforms.current_platform.is_unspecified():
        vllm.platforms._current_platform = CpuPlatform()
    from vllm.entrypoints.cli.serve import make_arg_parser  # where it is from has moved
    from vllm.envs import environment_variables
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    choices = {
        "tool-call-parser": sorted(ToolParserManager.list_registered()),
        "reasoning-parser": sorted(ReasoningParserManager.list_registered()),
    }
    variables = {name for name in environment_variables if name.startswith("VLLM_")}
    return make_arg_parser(FlexibleArgumentParser()), choices, variables


def lmdeploy() -> tuple[argparse.ArgumentParser, Choices, set[str]]:
    """The parser of `lmdeploy serve api_server`, and the LMDEPLOY_ and TM_ variables that its code reads."""
    from lmdeploy.cli.serve import SubCliServe
    from lmdeploy.serve.parsers.reasoning_parser import LEGACY_REASONING_PARSER_NAMES, ReasoningParserManager
    from lmdeploy.serve.parsers.tool_parser import ToolParserManager

    SubCliServe.add_parser_api_server()
    choices = {
        "tool-call-parser": sorted(ToolParserManager.module_dict),
        "reasoning-parser": sorted({*ReasoningParserManager.module_dict, *LEGACY_REASONING_PARSER_NAMES}),
    }
    spec = util.find_spec("lmdeploy")
    assert spec is not None and spec.submodule_search_locations
    return SubCliServe.subparsers.choices["api_server"], choices, read_by(Path(spec.submodule_search_locations[0]))


def read_by(package: Path) -> set[str]:
    """The variables that a package's Python reads, and those its compiled engine names (as a whole string).

    The names of the compiled engine's check macros (TM_CHECK, TM_CUDA_CHECK…) are such strings too, and no variables.
    """
    reads = re.compile(r"""(?:getenv|environ\.get|env_to_\w+)\(\s*['"]((?:LMDEPLOY|TM)_[A-Z0-9_]+)['"]""")
    names = {name for path in package.rglob("*.py") for name in reads.findall(path.read_text(encoding="utf-8"))}
    for library in package.rglob("*.so"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            strings = re.findall(rb"(?<=\0)(?:LMDEPLOY|TM)_[A-Z0-9_]+(?=\0)", content)
        names |= {name.decode() for name in strings if not re.fullmatch(rb"TM_(\w+_)?CHECK(_NOTNULL)?", name)}
    return names


def kind(action: argparse.Action) -> str:
    """What a flag takes."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch/no"
    if action.nargs == 0:
        return "switch"
    if action.nargs in ("+", "*") or isinstance(action.nargs, int) or isinstance(action, argparse._AppendAction):
        return "list"
    # the types are closures without a name of their own: what one makes of an empty mapping tells
    try:
        empty = action.type("{}") if callable(action.type) else "{}"
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return "value"
    return "commas" if isinstance(empty, list) else "value" if isinstance(empty, str) else "json"


def rows(parser: argparse.ArgumentParser, choices: Choices) -> Iterable[str]:
    """One line a flag, by name."""
    found = {}
    for action in parser._actions:
        negatable = isinstance(action, argparse.BooleanOptionalAction)
        names = [name for name in action.option_strings if not (negatable and name.startswith("--no-"))]
        long = [name.removeprefix("--").replace("_", "-") for name in names if name.startswith("--")]
        if not long or isinstance(action, argparse._HelpAction):
            continue
        allowed = choices.get(long[0], [str(item) for item in action.choices or [] if item is not None])
        others = [*long[1:], *(name for name in names if not name.startswith("--"))]
        found[long[0]] = " | ".join([long[0], kind(action), " ".join(allowed), " ".join(others)]).rstrip(" |")
    return [found[name] for name in sorted(found)]


def main(folder: Path) -> int:
    for engine, ask, command in (("vllm", vllm, "vllm serve"), ("lmdeploy", lmdeploy, "lmdeploy serve api_server")):
        if util.find_spec(engine):
            version = metadata.version(engine).partition("+")[0]
            parser, choices, variables = ask()
            table = [
                f"# {engine} {version}: the flags of `{command}` and its own variables. Made by make.py; do not edit.",
                "# name | kind | choices | other names",
                *rows(parser, choices),
                *(f"${name}" for name in sorted(variables)),
            ]
            (folder / f"{engine}-{version}.txt").write_text("".join(f"{row}\n" for row in table), encoding="utf-8")
            return 0
    print(f"make.py: {sys.executable} has neither vllm nor lmdeploy: see the top of this file", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
