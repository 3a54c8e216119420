"""`gpufleet adopt`: the servers that already run on a box, and what the same would be here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpufleet import target
from gpufleet.commands import models as pages
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.errors import BOX_FAILED, DONE
from gpufleet.fleet import Fleet
from gpufleet.models import Model

if TYPE_CHECKING:
    from gpufleet.adopting_box import Looked


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("box")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--write", is_flag=True, help="Write the pages of the models into files/models.")
@click.option("--force", is_flag=True, help="With --write: also over a page that differs.")
def adopt(inventory: Path, box: str, as_json: bool, write: bool, force: bool) -> None:
    """Look at what already serves language models on BOX of INVENTORY, and show the `serve` entry that serves the same.

    Units of the system and of users, and processes started by hand, of vLLM and LMDeploy; others are named. Each flag
    and variable is told: so by default already, given by the entry, otherwise here, or not carried over. The model is
    served from where it lies: its files are checked, not fetched and not moved.

    Nothing is changed on the box but /opt/gpufleet/kit, and the inventory is not edited: the lines for it are printed.
    Facts of a box of which none are known are kept in inventory/facts, as `gpufleet discover` does.
    The next deploy then stops the old unit, and starts it again when the gate does not pass.

    Exit codes: 0 done, also when nothing is found; 1 the box cannot be looked at, or a model is not whole; 2 the call
    or the configuration is wrong; 130 interrupted.
    """
    from gpufleet import adopting_box, adopting_view, known

    with configuration():
        fleet = reach.fleet_of(inventory)
        target.one_box(fleet, box)
        boxes = reach.connect(fleet, [box], packages=True, interrupted="")
        answers = boxes.call("adoptable", {box: {}}) if box in boxes.facts else {}
        if box not in answers:
            reach.finish(boxes, reach.shown(fleet), BOX_FAILED)
        facts, answer = boxes.facts[box], answers[box]
        if box not in fleet.facts:  # for `gpufleet plan`; what is known already stays, so that a change is noticed
            known.keep(fleet.facts_folder, box, facts)
        looked = adopting_box.adopt_all(fleet, box, facts, answer["services"], _text)
        if write:
            _write(fleet, looked, force, as_json)
    if as_json:
        reach.print_json(adopting_view.document(box, looked, answer["idle"]))
    else:
        for line in adopting_view.whole(box, looked, answer["idle"], reach.shown(fleet), write):
            reach.say(line)
    bad = any(item.page and item.page.problems for item in looked.services)
    sys.exit(BOX_FAILED if bad else DONE)


def _text(model: Model) -> str:
    return model.path.read_text(encoding="utf-8")


def _write(fleet: Fleet, looked: Looked, force: bool, quiet: bool) -> None:
    """The pages that are new, into the fleet's own folder; nothing of a model that is not whole. Raises Wrong."""
    folder = fleet.root / pages.PAGES
    for item in looked.services:
        page = item.page
        if page is not None and page.text is not None and not page.problems:
            pages.write(folder / f"{page.model.name}.yaml", page.text, force, quiet)
