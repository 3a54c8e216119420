"""Every command with its options, as click knows them: what `--help` says, as parts of docs/reference/commands.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from textwrap import fill

import click

from gpufleet.cli import main
from gpufleet.reference.regions import table

PROGRAM = "gpufleet"
WIDTH = 120
SEVERAL = "may be given several times"


def parts() -> dict[str, str]:
    """The list of all commands under `commands`, and each command under its words, `models check`."""
    found = dict(_commands(main, click.Context(main, info_name=PROGRAM)))
    listed = table(
        ("command", "what it does"),
        [(f"[`{_call(ctx)}`](#{name.replace(' ', '-')})", _first(ctx.command)) for name, ctx in found.items()],
    )
    return {"commands": listed, **{name: _section(ctx) for name, ctx in found.items()}}


def heading(name: str) -> str:
    """What stands above a command that the page has not yet."""
    return f"## {name}"


def _commands(group: click.Group, above: click.Context) -> Iterator[tuple[str, click.Context]]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command
        ctx = click.Context(command, info_name=name, parent=above)
        inside = isinstance(command, click.Group)
        if not inside or (isinstance(command, click.Group) and command.invoke_without_command):
            yield ctx.command_path.removeprefix(f"{PROGRAM} "), ctx
        if isinstance(command, click.Group):
            yield from _commands(command, ctx)


def _call(ctx: click.Context) -> str:
    """`gpufleet plan [INVENTORY]`, without the options."""
    pieces = [piece for piece in ctx.command.collect_usage_pieces(ctx) if piece != "[OPTIONS]"]
    if isinstance(ctx.command, click.Group):
        pieces = []
    return " ".join([ctx.command_path, *pieces])


def _paragraphs(command: click.Command) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    return [_marked(" ".join(part.split())) for part in re.split(r"\n\s*\n", text)]


def _first(command: click.Command) -> str:
    return _paragraphs(command)[0].removesuffix(".")


def _marked(text: str) -> str:
    """Text for a page: what would be read as HTML is not."""
    return re.sub(r"<(?=[a-z])", r"\\<", text)


def _section(ctx: click.Context) -> str:
    usage = f"    {_call(ctx)}"
    rows = [
        (_names(ctx, option), _meaning(option))
        for option in ctx.command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    options = [table(("option", "meaning"), rows)] if rows else []
    *text, last = _paragraphs(ctx.command)
    codes = last if last.startswith("Exit codes") else ""
    before, after = ([*text], [codes]) if codes else ([*text, last], [])
    return "\n\n".join([usage, *map(_filled, before), *options, *map(_filled, after)])


def _filled(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _names(ctx: click.Context, option: click.Option) -> str:
    value = "" if option.is_flag or option.count else f" {option.make_metavar(ctx)}"
    if option.metavar is None and isinstance(option.type, click.IntRange | click.FloatRange):
        value = " N"
    *others, last = sorted([*option.opts, *option.secondary_opts], key=len)
    return ", ".join([*(f"`{name}`" for name in others), f"`{last}{value}`"])


def _meaning(option: click.Option) -> str:
    text = _marked(" ".join((option.help or "").split()).removesuffix("."))
    if option.multiple and SEVERAL not in text:
        text = f"{text}; {SEVERAL}"
    if option.show_default and isinstance(option.default, int | float | str):
        text = f"{text}; default: {option.default}"
    return text
