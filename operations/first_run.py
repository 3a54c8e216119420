"""Before the first change of boxes that gpufleet has not changed yet: one screen of what would be done, and how long.

Right before pyinfra asks whether to go on, so that a hundred boxes' lines do not push it off; where it does not ask
(`-y`, `--dry`), when all boxes have been looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyinfra
import pyinfra_cli.cli

from gpufleet import first_run, first_run_files, first_run_time, terminal
from gpufleet.changes import Changes, untouched
from gpufleet.first_run import Subject, size
from gpufleet.first_run_files import Coming, coming
from gpufleet.first_run_time import Rates, about
from gpufleet.kit import FOLDER
from gpufleet.plan import BoxPlan
from gpufleet.settings import Fetch
from gpufleet.wheelhouse import built, rate
from gpufleet.wheelhouse.store import Store, default_root
from operations import become, contact
from operations.run import session

if TYPE_CHECKING:
    from operations.looks import Decided

REPORTS = 20  # of earlier runs that are read for how long an activation takes


def show(decided: Mapping[str, Decided]) -> None:
    """To standard error, as all that is told of a run.

    + decided: the boxes that go on
    """
    new = {name: found for name, found in decided.items() if found.changes and untouched(found.plan.facts)}
    subjects = [
        Subject(found.plan, found.changes, session.of(name).findings, login(name)) for name, found in new.items()
    ]
    count = "a box" if len(new) == 1 else f"{len(new)} boxes"
    lines = [
        "",
        f"First run on {count}: nothing was changed there yet but the kit in {FOLDER}.",
        *first_run.lines(subjects),
        "",
        *whole(decided),
        "",
    ]
    _say("\n".join(map(terminal.plain, lines)))


def _say(text: str) -> None:
    if not session.asks:
        click.echo(text, err=True)
        return
    original = pyinfra_cli.cli._do_confirm

    def confirm(question: str) -> bool:
        click.echo(text, err=True)
        return bool(original(question))

    pyinfra_cli.cli._do_confirm = confirm


def login(name: str) -> str:
    """`ops, root by sudo without a password; host key known`"""
    host = pyinfra.state.inventory.get_host(name)
    way = become.by_box.get(name)
    root = "root by sudo with a password" if way else "root by sudo without a password"
    user = str(host.data.get("ssh_user") or "root" if way is None else become.user(host))
    key = "confirmed just now" if name in contact.confirmed else "known"
    return f"{user}{'' if way is None else f', {root}'}; host key {key}"


def whole(decided: Mapping[str, Decided]) -> Iterator[str]:
    """The lines on the run as a whole: what comes from where, and about how long it takes."""
    boxes = {name: (found.plan, found.changes) for name, found in decided.items() if found.changes}
    store = Store(default_root())
    found, measured = coming(boxes, store), rate.last(store.root)
    rates = Rates(measured or first_run_time.OUTSIDE, measured=bool(measured))
    fetch = [plan.settings.fetch for plan, _ in boxes.values()]
    peers = all(each.peers for each in fetch)
    yield from outside(found, rates, fetch, store.root)
    if any(found.to_box.values()):
        way = ", which give it to each other" if peers and len(boxes) > 1 else ""
        most = max(found.to_box.values())
        yield f"to the boxes   {size(most)} to {'each' if len(boxes) > 1 else 'it'} at most{way}"
    made = [runtime.name for plan, _ in boxes.values() for runtime in plan.runtimes if _compiled(store, runtime.name)]
    seconds = first_run_time.fetching(found, rates) + first_run_time.spreading(found, rates, peers)
    seconds += first_run_time.installing(boxes.values(), made)
    seconds += first_run_time.starting(boxes.values(), list(reports()), len(session.order.waves))
    end = "the last box serves" if any(changes.instances for _, changes in boxes.values()) else "all is done"
    yield f"time           {about(seconds)} until {end}{_beside(boxes)}"


def outside(found: Coming, rates: Rates, fetch: Sequence[Fetch], root: Path) -> Iterator[str]:
    """+ fetch: the settings of the boxes; root: of the controller's store"""
    here = all(each.by == "controller" for each in fetch)
    by = "this controller" if here else "the boxes, each file by one of them"
    offline = any(each.offline for each in fetch)
    if (found.lacking or found.unknown) and not offline:
        more = f" and {len(found.unknown)} files of unknown size" if found.unknown else ""
        said = "as measured at the last fetch" if rates.measured else "assumed: nothing was fetched here before"
        took = f"{about(first_run_time.fetching(found, rates))} at {rates.outside / 1e6:.3g} MB/s ({said})"
        yield f"from outside   {size(found.lacking)}{more}, once, by {by}: {took}"
    elif found.have:
        yield "from outside   nothing"
    if found.have:
        yield f"here already   {size(found.have)} in {root}"
    free = first_run_files.free(root)
    if offline and (found.lacking or found.unknown):
        yield f"too little     {size(found.lacking)} lack in {root}, and fetch.offline is set: the deploy says which"
    elif here and free is not None and free < found.lacking:
        yield f"too little     {size(free)} are free where {root} is: free space, or set GPUFLEET_STORE"


def reports() -> Iterator[dict[str, Any]]:
    """Those of earlier runs of this inventory, oldest first; one that cannot be read tells nothing."""
    folder = session.fleet.reports_folder if session.fleet else None
    for path in sorted(folder.glob("2*.json"))[-REPORTS:] if folder else ():
        with suppress(OSError, ValueError):
            page = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(page, dict):
                yield page


def _compiled(store: Store, runtime: str) -> bool:
    return built.find(store, f"{runtime}-compiled") is not None


def _beside(boxes: Mapping[str, tuple[BoxPlan, Changes]]) -> str:
    """What is not in the figure."""
    apt = any(changes.packages for _, changes in boxes.values())
    source = any(runtime.stack.from_source for _, changes in boxes.values() for runtime in changes.runtimes)
    beside = [*(["what apt fetches"] if apt else []), *(["hours of building from source"] if source else [])]
    return f", beside {' and '.join(beside)}" if beside else ""
