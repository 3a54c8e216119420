"""The `gpufleet` command: each of its commands is a module of gpufleet.commands."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from gpufleet import __version__, terminal
from gpufleet.commands.folder import NOWHERE, Wrong, is_nowhere
from gpufleet.commands.instead import Instead
from gpufleet.errors import INTERRUPTED, WRONG, ConfigError

# The module of gpufleet.commands that has it, where it is not called as the command is.
MODULES = {"unhold": "hold", "forget": "remove"}
COMMANDS = (
    *("init", "plan", "deploy", "discover", "fetch", "diff", "status", "logs", "history"),
    *("rollback", "hold", "unhold", "restart", "unlock"),
    *("gc", "adopt", "remove", "forget", "patches", "stacks", "models"),
    *("bundle", "doctor"),
)


class Commands(click.Group):
    """Commands, each imported when it is called.

    They end with the agreed exit codes also when interrupted, or when a file or the output fails them.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"gpufleet.commands.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except Instead as ended:
            other = ended
        except OSError as error:  # of what is printed before `invoke`: `--help`, `--version`
            print(f"gpufleet: {_cause(error)}", file=sys.stderr)
            sys.exit(WRONG)
        return other.go_on()  # outside, so that what it raises is not said to come from here

    def invoke(self, ctx: click.Context) -> Any:
        terminal.prepare()
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            click.echo("gpufleet: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            terminal.outlive_readers()  # there is no more to be said, and no more is
            ctx.exit(terminal.PIPE_CLOSED)
        except ConfigError as error:  # of what a command reads before or after its own work
            raise Wrong("\n".join(error.problems)) from error
        except OSError as error:
            raise Wrong(_cause(error)) from error


def _cause(error: OSError) -> str:
    """What a command could not read or write, and what to do."""
    if error.filename is None:
        if _of_the_output(error):
            return f"standard output cannot be written: {error.strerror}; free space there, or send it elsewhere"
        if is_nowhere():
            return NOWHERE
    return f"{error}; mend that and call it again"


def _of_the_output(error: OSError) -> bool:
    """Whether it was raised by printing: by click or rich, or by the flush at the end."""
    where, trace = [""], error.__traceback__
    while trace is not None:
        where.append(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return where[-1] == __name__ or not {"click.utils", "rich.console"}.isdisjoint(where)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpufleet")
def main() -> None:
    """From bare Ubuntu/Debian boxes with older NVIDIA GPUs to serving language models."""
