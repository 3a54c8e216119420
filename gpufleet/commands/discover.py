"""`gpufleet discover`: look at boxes again, keep what they answer, and say what changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gpufleet import terminal
from gpufleet.commands.folder import configuration, enter
from gpufleet.errors import BOX_FAILED
from gpufleet.screen import screen

COLUMNS = ("box", "traits", "GPUs", "links", "driver", "system")


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
def discover(inventory: Path, limit: tuple[str, ...]) -> None:
    """Look at the boxes of INVENTORY again, and keep what they answer in inventory/facts.

    Nothing is changed on a box but /opt/gpufleet/kit. What is kept is used by groups by trait, and by the next deploy,
    which refuses a box whose hardware is another.

    Exit codes: 0 done; 1 a box could not be looked at, the others were; 2 the call or the configuration is wrong; 130
    interrupted.
    """
    from gpufleet import known, left_behind
    from gpufleet.inventory import from_file
    from operations import discovery  # the only way to a box; it brings pyinfra and paramiko, so only here

    failures: list[str] = []
    news: dict[str, list[str]] = {}
    terminal.outlive_readers()
    with configuration():
        fleet = from_file(enter(inventory))
        before = dict(fleet.facts)
        for name, found in discovery.alone(fleet, fleet.concerned(limit, ())).items():
            if isinstance(found, Exception):
                failures.append(str(found))
                continue
            fleet.facts[name] = found
            news[name] = known.news(before[name], found) if name in before else ["not known before"]
            known.keep(fleet.facts_folder, name, found)
        left_behind.note(fleet, news)
    show({name: fleet.facts[name] for name in news}, news)
    for line in [*failures, *left_behind.lines(fleet)]:
        click.echo(terminal.plain(line), err=True)
    sys.exit(BOX_FAILED if failures else 0)


def show(facts: Mapping[str, Mapping[str, Any]], news: Mapping[str, list[str]]) -> None:
    """Print a line for each box, then what changed, a line each."""
    console = screen()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, overflow="fold")
    for name, found in facts.items():
        terminal.add_row(table, *row(name, found))
    if facts:
        console.print(table)
    for name, lines in news.items():
        for line in lines:
            console.print(terminal.plain(f"{name}: {line}"), markup=False)


def row(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The line of one box."""
    from gpufleet.traits import traits_of

    cards = Counter(f"{gpu.get('name')} {gpu.get('memory_mib')} MiB" for gpu in facts.get("gpus") or [])
    driver, system = facts.get("driver") or {}, facts.get("os") or {}
    version = f"{driver.get('version')} (CUDA {driver.get('cuda') or 'unknown'})" if driver else "none"
    return (
        name,
        " ".join(traits_of(facts)),
        counted(cards) or "none",
        counted(Counter((facts.get("links") or {}).values())),
        version,
        f"{system.get('id')} {system.get('version_id')}",
    )


def counted(things: Counter[str]) -> str:
    """`2 × NV2, 4 × PHB`."""
    return ", ".join(f"{count} × {thing}" for thing, count in things.items())
