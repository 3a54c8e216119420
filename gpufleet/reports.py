"""The file that every run leaves, whatever ended it: what was done on which box, when, how it went. Without secrets."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufleet import __version__, masking
from gpufleet.errors import BOX_FAILED, DONE, INTERRUPTED, LOCKED, REFUSED, WOULD_CHANGE, WRONG
from gpufleet.render import release
from gpufleet.report import Outcome
from gpufleet.waves import Order

SCHEMA = 1
KEPT = 50
ENDS = {
    DONE: "done",
    BOX_FAILED: "failed",
    WRONG: "wrong",
    REFUSED: "refused",
    LOCKED: "locked",
    WOULD_CHANGE: "would change",
    INTERRUPTED: "interrupted",
}


@dataclass(frozen=True)
class Run:
    """What concerns all boxes of a run. `turns`: the boxes that were switched, by number of the wave."""

    id: str
    began: float
    exit_code: int
    message: str
    dry: bool
    inventory: str
    limit: Sequence[str] = ()
    exclude: Sequence[str] = ()
    order: Order = field(default_factory=Order)
    turns: Mapping[int, Sequence[str]] = field(default_factory=dict)


def document(run: Run, outcomes: Sequence[Outcome], ended: float | None = None) -> dict[str, Any]:
    """The report as JSON: docs/reference/report.schema.json."""
    end = time.time() if ended is None else ended
    return {
        "schema": SCHEMA,
        "version": __version__,
        "run": run.id,
        "began": moment(run.began),
        "ended": moment(end),
        "seconds": round(end - run.began, 1),
        "who": who(),
        "host": socket.gethostname(),
        "inventory": run.inventory,
        "limit": list(run.limit),
        "exclude": list(run.exclude),
        "dry": run.dry,
        "end": ENDS.get(run.exit_code, "failed"),
        "exit_code": run.exit_code,
        "message": run.message or None,
        "waves": [
            {
                "number": wave.number,
                "reason": wave.reason,
                "boxes": list(wave.boxes),
                "switched": list(run.turns[wave.number]) if wave.number in run.turns else None,
            }
            for wave in run.order.waves
        ],
        "boxes": {outcome.box: _box(outcome, run.dry) for outcome in outcomes},
    }


def _box(outcome: Outcome, dry: bool) -> dict[str, Any]:
    plan = outcome.plan
    failure = {"cause": outcome.cause or outcome.failure, "remedy": outcome.remedy, "log": outcome.log}
    return {
        "traits": list(plan.traits) if plan else [],
        "outcome": outcome.word(dry),
        "findings": [{"code": finding.code, "level": finding.level} for finding in outcome.findings],
        "to_do": list(outcome.changes),
        "steps": [
            {
                "step": step.name,
                "began": moment(step.began),
                "seconds": step.seconds,
                "changed": step.changed,
                "outcome": step.outcome or "interrupted",
            }
            for step in outcome.steps
        ],
        "instances": _instances(outcome),
        "failure": failure if outcome.failure else None,
    }


def _instances(outcome: Outcome) -> dict[str, Any]:
    """What serves before and after; of a box whose look failed nothing is known."""
    if outcome.plan is None:
        return {}
    before = outcome.plan.facts.get("instances") or {}
    planned = {instance.name: instance for instance in outcome.plan.instances}
    found = {}
    for name in [*planned, *(name for name in outcome.leaving if name not in planned)]:
        was = (before.get(name) or {}).get("current")
        gate = outcome.gates.get(name)
        found[name] = {
            "model": planned[name].model.name if name in planned else None,
            "stack": planned[name].stack.name if name in planned else None,
            "port": planned[name].port if name in planned else None,
            "planned": release(planned[name]).digest if name in planned else None,
            "before": was,
            "after": outcome.serves.get(name, was),
            "changed": name in outcome.changed or name in outcome.leaving,
            "put_back": name in outcome.put_back,
            "gate": dict(gate) if gate else None,
        }
    return found


def keep(folder: Path, run: str, report: Mapping[str, Any], secrets: Collection[str]) -> Path:
    """Write a report, whole or not at all, for its owner's eyes only; the newest KEPT stay. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}.json"
    aside = folder / f".{run}.part"
    text = json.dumps(masking.document(report, secrets), indent=1, ensure_ascii=False) + "\n"
    try:
        aside.touch(0o600)
        aside.write_text(text, encoding="utf-8", errors="replace")  # a box's log may hold anything
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    for old in sorted(folder.glob("2*.json"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def who() -> str:
    """Whoever called, and not root when it was by sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
