"""Run by a runtime's python on a box: what the genuine parser makes of a configuration (its path), as JSON."""

import dataclasses
import json
import sys

from vllm.entrypoints.cli.serve import cmd_init  # type: ignore[import-not-found]
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


parser = FlexibleArgumentParser()
commands = parser.add_subparsers(required=False, dest="subparser")
for command in cmd_init():
    command.subparser_init(commands)
print(json.dumps(plain(vars(parser.parse_args(["serve", "a-model", "--config", sys.argv[1]])))))
