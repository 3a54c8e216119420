"""`gpufleet models fit`: which boxes can serve a model, at what length and for how many requests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from gpufleet import terminal
from gpufleet.commands.folder import Wrong, configuration, enter
from gpufleet.errors import DONE, REFUSED, nearest

if TYPE_CHECKING:
    from gpufleet.fit_changes import Change
    from gpufleet.fitting import Answer, Room, Subject
    from gpufleet.models import Model

COLUMNS = ("box", "serves it", "stack", "GPUs", "cards", "longest alone", "longest each", "at full length", "KV left")
NUMBERS = COLUMNS[5:]
WORDS = {True: "yes", False: "no", None: "not known"}


@click.command()
@click.argument("name", metavar="MODEL")
@click.argument("inventory", type=click.Path(path_type=Path), required=False)
@click.option("--topology", type=click.Path(path_type=Path), help="A scenario in place of an inventory.")
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, the strongest; a.b=c goes in.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def fit(
    name: str,
    inventory: Path | None,
    topology: Path | None,
    limit: tuple[str, ...],
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show which boxes of INVENTORY can serve MODEL, each as if it served nothing else; nothing is connected to.

    For each: on which cards and with which stack, the longest context when one request is served at a time and when
    all streams of the recipe are, how many requests of the recipe's full length go at once, and what is left. Where a
    box cannot, the settings that would change that, as lines for a file of group_data.

    It works from the facts that earlier looks kept, or with --topology from a scenario.

    Exit codes: 0; 2 the call or the configuration is wrong; 3 no box can serve it.
    """
    from gpufleet import fitting, planning

    with configuration():
        if (inventory is None) == (topology is None):
            raise click.UsageError(f"give an inventory, such as inventory/home.py, or --topology FILE{_unknown(name)}")
        if topology is not None and limit:
            raise click.UsageError("--limit is for an inventory: a scenario is one box")
        given = planning.overrides(settings, [])
        subjects = list(_of_topology(topology) if topology is not None else _of_inventory(inventory, limit))
        model = subjects[0].models.find(name, "gpufleet models fit")
        if model.architecture is None:
            raise Wrong(f"{model.path}: it has no `architecture`: `gpufleet models add` makes a page with one")
        answers = [fitting.answer(subject, model, given) for subject in subjects]
    if as_json:
        click.echo(json.dumps(document(model, answers), indent=1))
    else:
        show(model, answers)
    sys.exit(REFUSED if all(item.can is False for item in answers) else DONE)


def _unknown(name: str) -> str:
    """What to add where no page that comes along, or is in the working directory, has this name."""
    from gpufleet import catalogue, paths
    from gpufleet.models import Model

    models = catalogue.load(Model, "model", paths.model_folders(Path.cwd()))
    return "" if name in models else f"; and no page here is called {name!r}{nearest(name, models)}"


def _of_topology(path: Path) -> Iterator[Subject]:
    """The scenario's box; catalogues of the working directory count, its group_data does not."""
    from gpufleet import catalogue, paths, scenario
    from gpufleet.fitting import Subject
    from gpufleet.models import Model
    from gpufleet.plan import Box
    from gpufleet.stacks import Stack

    page = scenario.page(path)
    facts = scenario.facts_of(page)
    stacks = catalogue.load(Stack, "stack", paths.stack_folders(Path.cwd()))
    models = catalogue.load(Model, "model", paths.model_folders(Path.cwd()))
    yield Subject(Box(facts["hostname"], {}, (), str(path)), facts, {}, stacks, models)


def _of_inventory(inventory: Path | None, limit: Sequence[str]) -> Iterator[Subject]:
    from gpufleet.fitting import Subject
    from gpufleet.planning import seen

    assert inventory is not None
    fleet = seen(enter(inventory), limit)
    for box in fleet.select(limit, ()):
        yield Subject(fleet.boxes[box], fleet.facts[box], fleet.layers, fleet.stacks, fleet.models)


def show(model: Model, answers: Sequence[Answer]) -> None:
    """One table of all boxes, then what to change on those that cannot."""
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, overflow="fold", justify="right" if title in NUMBERS else "left")
    for item in answers:
        for number, row in enumerate(_row(room) for room in item.rooms) if item.rooms else [(0, ("",) * 7)]:
            head = (item.box, WORDS[item.can]) if number == 0 else ("", "")
            terminal.add_row(table, *head, *row)
    console.print(table)
    console.print()
    for line in notes(model, answers):
        console.print(terminal.plain(line), markup=False)


def _row(room: Room) -> tuple[str, ...]:
    groups = " ".join(",".join(str(index) for index in group) for group in room.gpus)
    size = f"{room.size} × " if room.size > 1 else ""
    if room.fits is None:
        return room.stack, groups or "cpu", f"{size}{room.cards}", "", "", "", ""
    return (
        room.stack,
        groups,
        f"{size}{room.cards}",
        f"{room.longest:,}",
        f"{room.longest_each:,} × {room.streams}",
        f"{room.most} × {room.max_model_len:,}",
        f"{room.left_mib:,} MiB",
    )


def notes(model: Model, answers: Sequence[Answer]) -> Iterator[str]:
    """What keeps a box from serving it, and each change that would help, the plainest first."""
    able = [item.box for item in answers if item.can]
    for item in answers:
        for why in item.why:
            yield f"{item.box}: {why}."
        for number, change in enumerate(item.changes):
            word = "it fits with" if number == 0 else "or with"
            yield f"{item.box}: {word} {change.title} ({change.figure}):"
            yield from (f"    {line}" for line in change.lines)
        if item.can is False and able:
            yield f"{item.box}: or put it on {', '.join(able[:5])}."
        if item.can is False and not item.changes and not able:
            yield f"{item.box}: {_hopeless(item)}"
        if item.can and item.idle:
            yield f"{item.box}: not used: GPU {', '.join(str(index) for index in item.idle)}."
        if item.can is None:
            yield f"{item.box}: nothing is said of memory on CPUs: `gpufleet plan` has what the rules say."
    if all(item.can is False and not item.changes for item in answers):
        yield f"{model.name}: no box can serve it, whatever is set: take a smaller model or quantisation."


def _hopeless(item: Answer) -> str:
    rooms = [room for room in item.rooms if room.memory]
    if not rooms or rooms[0].memory is None:
        return "no setting of the model's changes that."
    found = rooms[0].memory
    weights = found.weights_mib + found.mtp_mib + found.vision_mib
    return f"its weights take {weights:,} MiB of each card, {found.budget_mib:,} MiB may be used."


def document(model: Model, answers: Sequence[Answer]) -> dict[str, Any]:
    """The same for a program."""
    return {
        "schema": 1,
        "model": model.name,
        "boxes": [
            {
                "name": item.box,
                "can": item.can,
                "rooms": [_room(room) for room in item.rooms],
                "why": item.why,
                "changes": [_change(change) for change in item.changes],
                "idle_gpus": item.idle,
            }
            for item in answers
        ],
    }


def _room(room: Room) -> dict[str, Any]:
    return {
        "stack": room.stack,
        "gpus": [list(group) for group in room.gpus],
        "link": room.link,
        "cards": room.cards,
        "fits": room.fits,
        "max_model_len": room.max_model_len,
        "streams": room.streams,
        "longest": room.longest,
        "longest_each": room.longest_each,
        "most_requests": room.most,
        "left_mib": room.left_mib,
    }


def _change(change: Change) -> dict[str, Any]:
    memory = change.memory
    return {
        "title": change.title,
        "settings": dict(change.settings),
        "lines": change.lines,
        "max_model_len": memory.max_model_len,
        "concurrency": round(memory.concurrency, 2),
    }
