"""What the genuine `vllm serve` makes of configuration files: the namespace of its own parser, one line of JSON a file.

    PYTHON tests/golden/namespace.py [--changed] serve.yaml…

PYTHON has the genuine vLLM: a runtime's python on a box, or that of an environment made by

    tools/parser-env vllm-0.27.1 FOLDER        # and vllm-0.24.0: FOLDER/bin/python

Without `--changed`, everything the parser knows, with its defaults. With it, what a file gives and nothing else: a flag
that it gives is there even with the default's value; of a flag that is read into a configuration object (such as
compilation-config), the fields that differ from the default's. So a golden file holds the flags that a recipe sets.

Starting vLLM's parser takes about ten seconds, so give all files in one call. Exits with 2, as the parser does, when
it refuses a file, and with 1 when the server would refuse the flags together (auto tool choice without a parser).
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

MODEL = "a-model"  # the model is no flag: a unit gives it on the command line


def serve_parser() -> argparse.ArgumentParser:
    """The parser of the `vllm` command, with its subcommand `serve`."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    # A CUDA build on a machine without a GPU knows no device, and the parser's defaults need one. No flag does.
    if vllm.platforms.current_platform.is_unspecified():
        vllm.platforms._current_platform = CpuPlatform()
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    commands = parser.add_subparsers(required=False, dest="subparser")
    for command in cmd_init():
        command.subparser_init(commands)
    return parser


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The flags of `serve`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices["serve"]._actions


def plain(value: object) -> object:
    """A value of the namespace as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def changed(value: object, default: object) -> object:
    """The fields of a configuration object that differ from the default's; any other value as it is."""
    if not dataclasses.is_dataclass(value):
        return plain(value)
    if not dataclasses.is_dataclass(default):
        default = type(value)()  # the flag has no default of its own: what an empty mapping would give
    return {
        field.name: changed(item, base)
        for field in dataclasses.fields(value)
        if field.init and plain(item := getattr(value, field.name)) != plain(base := getattr(default, field.name))
    }


def main(arguments: list[str]) -> None:
    files = [argument for argument in arguments if argument != "--changed"]
    parser = serve_parser()
    from vllm.entrypoints.cli.serve import validate_parsed_serve_args

    found = [parser.parse_args(["serve", MODEL, "--config", file]) for file in files]
    for namespace in found:
        validate_parsed_serve_args(namespace)
    answers: list[Any] = [plain(vars(namespace)) for namespace in found]
    if "--changed" in arguments:
        defaults = {}
        for action in actions(parser):
            defaults[action.dest], action.default = action.default, argparse.SUPPRESS
        given = [set(vars(parser.parse_args(["serve", MODEL, "--config", file]))) for file in files]
        answers = [
            {
                name: changed(value, defaults[name])
                for name, value in sorted(vars(namespace).items())
                if name in names and name in defaults and name not in ("model_tag", "config")
            }
            for namespace, names in zip(found, given, strict=True)
        ]
    for answer in answers:
        print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
