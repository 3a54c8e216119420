"""`gpufleet stacks`: the catalogue, its locks made and checked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from gpufleet import terminal
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.errors import WRONG

if TYPE_CHECKING:
    from gpufleet.catalogue import Catalogue
    from gpufleet.stacks import Stack

COLUMNS = ("stack", "for", "by default", "Python", "can be installed")


@click.group(invoke_without_command=True)
@click.pass_context
def stacks(ctx: click.Context) -> None:
    """List the stacks: those that come along, and those of files/stacks of the folder you are in.

    Exit codes: 0; 2 a page is wrong.
    """
    if ctx.invoked_subcommand is None:
        with configuration():
            found = _catalogue()
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in COLUMNS:
            table.add_column(title, overflow="fold")
        for stack in found.values():
            terminal.add_row(table, *_row(stack))
        Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200).print(table)


@stacks.command()
@click.argument("name")
@click.option("--python", "pythons", multiple=True, metavar="VERSION", help="Only this Python of the page, as 3.12.")
@click.option("--find-links", multiple=True, metavar="FOLDER", help="A folder or page with further wheels.")
@click.option("--index", multiple=True, metavar="URL", help="A further index; default: the page's torch_index.")
def lock(name: str, pythons: tuple[str, ...], find_links: tuple[str, ...], index: tuple[str, ...]) -> None:
    """Make the locks of the stack NAME anew, one for each Python of its page, from files/locks/<lock>.in.

    Only metadata is downloaded, from the index that uv uses (UV_DEFAULT_INDEX). The page's torch_index is asked too,
    unless --index or --find-links says where else its builds are.

    Exit codes: 0; 2 there is no such stack, or no set of packages that fits.
    """
    from gpufleet.wheelhouse import lock_make
    from gpufleet.wheelhouse.lock_target import targets

    with configuration():
        stack = _catalogue().find(name, "gpufleet stacks lock")
        if wrong := [python for python in pythons if python not in stack.python]:
            raise click.UsageError(f"{name} is for Python {', '.join(stack.python)}, not {', '.join(wrong)}")
        beside = list(index) or ([stack.torch_index] if stack.torch_index and not find_links else [])
        options = [part for folder in find_links for part in ("--find-links", folder)]
        options += [part for url in beside for part in ("--index", url)]
        options += ["--index-strategy", "unsafe-best-match"] if beside else []
        found = targets(stack)
        if not found:
            raise Wrong(f"{name} has no `lock`: name one on its page, and write its files/locks/<lock>.in")
        for target in found:
            for python in pythons or stack.python:
                text = lock_make.make(target, python, options, lambda line: click.echo(line, err=True))
                path = target.path(python)
                aside = path.with_suffix(f".{os.getpid()}.part")
                aside.write_text(text, encoding="utf-8")
                aside.replace(path)
                click.echo(f"{path}: {text.count('--hash=')} packages")


@stacks.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def check(names: tuple[str, ...]) -> None:
    """Check the locks of all stacks, or of those named; nothing is downloaded.

    Every lock is whole, made from the present .in file, for its Python and platform, has the versions of the page, and
    nothing is missing in it or superfluous.

    Exit codes: 0; 2 something is wrong.
    """
    from gpufleet.wheelhouse import lock_check
    from gpufleet.wheelhouse.lock_target import targets

    with configuration():
        catalogue = _catalogue()
        chosen = [catalogue.find(name, "gpufleet stacks check") for name in names] or list(catalogue.values())
    wrong = 0
    for stack in chosen:
        found = lock_check.problems(stack)
        wrong += len(found)
        for line in found:
            click.echo(f"gpufleet: {terminal.plain(line)}", err=True)
        if not found:
            locks = ", ".join(target.name for target in targets(stack))
            click.echo(f"{stack.name}: {f'in order: {locks}' if locks else 'no lock, planned with only'}")
    sys.exit(WRONG if wrong else 0)


def _row(stack: Stack) -> tuple[str, ...]:
    archs, default = " ".join(stack.arch), " ".join(stack.default_for) or "no"
    return (
        stack.name,
        archs,
        "all of them" if default == archs else default,
        " ".join(sorted(stack.python, key=lambda minor: int(minor[2:]))),
        "yes" if stack.installable else "no, it has no lock",
    )


def _catalogue() -> Catalogue[Stack]:
    from gpufleet import catalogue, paths
    from gpufleet.stacks import Stack

    return catalogue.load(Stack, "stack", paths.stack_folders(Path.cwd()))
