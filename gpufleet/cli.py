"""The `gpufleet` command: each of its commands is a module of gpufleet.commands."""

from __future__ import annotations

import click

from gpufleet import __version__
from gpufleet.commands.deploy import deploy
from gpufleet.commands.discover import discover
from gpufleet.commands.plan import plan


@click.group()
@click.version_option(__version__, prog_name="gpufleet")
def main() -> None:
    """From bare Ubuntu/Debian boxes with older NVIDIA GPUs to serving language models."""


main.add_command(deploy)
main.add_command(discover)
main.add_command(plan)
