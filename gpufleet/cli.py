"""The `gpufleet` command: each of its commands is a module of gpufleet.commands."""

from __future__ import annotations

import sys
from typing import Any

import click

from gpufleet import __version__, terminal
from gpufleet.commands.deploy import deploy
from gpufleet.commands.diff import diff
from gpufleet.commands.discover import discover
from gpufleet.commands.fetch import fetch
from gpufleet.commands.folder import Wrong
from gpufleet.commands.gc import gc
from gpufleet.commands.history import history
from gpufleet.commands.hold import hold, unhold
from gpufleet.commands.logs import logs
from gpufleet.commands.models import models
from gpufleet.commands.patches import patches
from gpufleet.commands.plan import plan
from gpufleet.commands.restart import restart
from gpufleet.commands.rollback import rollback
from gpufleet.commands.stacks import stacks
from gpufleet.commands.status import status
from gpufleet.commands.unlock import unlock
from gpufleet.errors import INTERRUPTED


class Commands(click.Group):
    """Commands that end with the agreed exit codes also when interrupted, or when a file or the output fails them."""

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
        except OSError as error:
            raise Wrong(f"{error}; mend that and call it again") from error


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="gpufleet")
def main() -> None:
    """From bare Ubuntu/Debian boxes with older NVIDIA GPUs to serving language models."""


for _command in (
    *(plan, deploy, discover, fetch, diff, status, logs, history),
    *(rollback, hold, unhold, restart, unlock),
    *(gc, patches, stacks, models),
):
    main.add_command(_command)
