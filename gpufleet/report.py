"""The end of a run: a table with a line for each box and instance, then what failed and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from gpufleet import columns, terminal
from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules import Finding

TITLES = ("box", "traits", "instance", "stack", "port", "state")
WIDTH = 140  # of what is no terminal


@dataclass
class Step:
    """An operation on a box. `began` in seconds since the epoch; `outcome` is `done` or `failed`, empty meanwhile."""

    name: str
    began: float
    seconds: float | None = None
    changed: bool = False
    outcome: str = ""


@dataclass
class Outcome:
    """What became of one box in a run.

    + serves: digests by instance, as far as the run has seen them change
    + put_back: instances that had been switched and were put back because of another box, and what serves now
    + untouched: why nothing was switched on a box that there was nothing wrong with
    """

    box: str
    plan: BoxPlan | None = None
    findings: list[Finding] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)  # names of instances
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)  # names of instances
    failure: str = ""
    cause: str = ""
    remedy: str = ""
    log: str = ""  # the last lines of the log of what failed
    steps: list[Step] = field(default_factory=list)
    serves: dict[str, str | None] = field(default_factory=dict)
    put_back: dict[str, str] = field(default_factory=dict)
    on_hold: set[str] = field(default_factory=set)  # names of instances that are left as they are
    untouched: str = ""
    interrupted: bool = False

    @property
    def refused(self) -> bool:
        """Whether a rule refused the box: then nothing was touched on it but the kit."""
        return any(finding.level == "error" for finding in self.findings)

    def word(self, dry: bool) -> str:
        """What became of the box as a whole, in a word or two."""
        if self.failure:
            return "failed"
        if self.refused:
            return "refused"
        if self.put_back:
            return "put back"
        if self.untouched:
            return "not touched"
        if not self.changes:
            return "nothing to do"
        return "interrupted" if self.interrupted else "would change" if dry else "changed"


def show(outcomes: list[Outcome], dry: bool) -> None:
    """Print the report to standard error (standard output is pyinfra's own, which may be JSON)."""
    found = [
        tuple(map(terminal.plain, row))
        for each in sorted(outcomes, key=lambda item: item.box)
        for row in rows(each, dry)
    ]
    styled = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else WIDTH
    table = columns.lines(TITLES, found, width)
    if table is None:
        _folded(found, width)
    else:
        heading, *others = table
        click.echo("\n".join(["", click.style(heading, bold=styled or None), *others]), err=True)
    for line in problems(outcomes):
        click.echo(click.style(terminal.plain(line), fg="red" if styled else None), err=True)


def _folded(found: Sequence[Sequence[str]], width: int) -> None:
    """The table with cells of several lines, where it is wider than the terminal."""
    from rich.table import Table

    from gpufleet.screen import screen

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in TITLES:
        table.add_column(title, overflow="fold")
    for row in found:
        terminal.add_row(table, *row)
    console = screen(sys.stderr, width)
    console.print()
    console.print(table)


def rows(outcome: Outcome, dry: bool) -> list[tuple[str, ...]]:
    """The lines of one box."""
    plan = outcome.plan
    if plan is None:
        return [(outcome.box, "", "", "", "", "failed")]
    traits = " ".join(plan.traits)
    left = "failed" if outcome.failure else "would be retired" if dry else "retired"
    left = f"not touched: {outcome.untouched}" if outcome.untouched else left
    leaving = [("", "", name, "", "", left) for name in outcome.leaving]
    if not plan.instances:
        return [(outcome.box, traits, "", "", "", _state(outcome, dry, None)), *leaving]
    served = [
        (
            outcome.box if index == 0 else "",
            traits if index == 0 else "",
            instance.name,
            instance.stack.name,
            str(instance.port),
            _state(outcome, dry, instance),
        )
        for index, instance in enumerate(plan.instances)
    ]
    return [*served, *leaving]


def _state(outcome: Outcome, dry: bool, instance: Instance | None) -> str:
    if outcome.failure:
        return "failed"
    if outcome.refused:
        return "refused"
    if instance and instance.name in outcome.put_back:
        return f"put back: {outcome.put_back[instance.name]}"
    if instance and instance.name in outcome.on_hold:
        return "on hold, left as it is"
    if outcome.untouched and (not instance or instance.name in outcome.changed or not outcome.changed):
        return f"not touched: {outcome.untouched}"
    gate = outcome.gates.get(instance.name) if instance else None
    if gate:
        return f"serving, {'restarted' if gate['restarted'] else 'not restarted'}, gated in {gate['seconds']} s"
    if outcome.interrupted and outcome.changes:
        return "interrupted"
    if instance.name in outcome.changed if instance else outcome.changes:
        return "would change" if dry else "changed"
    return "serving, nothing to do" if instance else "nothing to do"


def problems(outcomes: list[Outcome]) -> list[str]:
    """One line for each failure and each refusal: box, cause, remedy."""
    lines = []
    for outcome in sorted(outcomes, key=lambda item: item.box):
        if outcome.failure:
            lines.append(f"{outcome.box}: {outcome.failure}")
        lines += [
            f"{outcome.box}: {finding.message} [{finding.label}]. Remedy: {finding.remedy}."
            for finding in outcome.findings
            if finding.level == "error"
        ]
    return lines
