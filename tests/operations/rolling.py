"""Boxes that serve a model on an old release, with a kit that switches them: what a rollout is tried on.

The lock is the genuine verb, each box with a file of its own.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.render import release
from hostkit import files, lock, state
from hostkit.errors import Failure
from tests.operations.boxes import IDLE, Boxes, boxes
from tests.operations.three import CPU
from tests.unit.fleets import product_stacks

MODEL = "qwen3-0.6b"
OLD = "0" * 16
SERVES = {"serve": [MODEL]}
_one_at_a_time = threading.Lock()


def planned(facts: dict[str, Any]) -> BoxPlan:
    models = catalogue.load(Model, "model", paths.model_folders())
    return plan_box(Box("box", {**IDLE, **SERVES}, (), "inventory"), facts, {}, product_stacks(), models)


def served(current: str | None) -> dict[str, Any]:
    """Facts of a box on which all is in place, and whose instance serves this release, or is not there yet."""
    facts = copy.deepcopy(CPU)
    plan = planned(facts)
    (instance,) = plan.instances
    facts["packages"] = dict.fromkeys(plan.packages, "1")
    facts["runtimes"] = {instance.runtime.name: {"complete": True}}
    facts["models"] = {
        f"{instance.model.name}/{instance.model.directory}": {"complete": True, "link": instance.model.link}
    }
    service = {"active": "active", "sub": "running", "enabled": True, "pid": 7, "restarts": 0, "since": None}
    if current:
        facts["instances"] = {
            MODEL: {
                "current": current, "releases": [current], "drift": [], "gated": current, "stale": False,
                "port": instance.port, "service": service,
            }
        }  # fmt: skip
    return facts


def new_digest() -> str:
    return release(planned(CPU).instances[0]).digest


@dataclass
class Fleet:
    """Boxes with a kit. What a test sets: `bad` (the gate fails), `dying` (serves no more once asked again), `slow`.

    + calls: (box, verb) in the order in which they began; switched: boxes in the order of their activation
    + replaced: units of the owner's that an activation was told of, by box; given_back: those that serve again
    + most_down: the most boxes that were being switched at one moment
    """

    boxes: Boxes
    root: Path
    bad: set[str] = field(default_factory=set)
    dying: set[str] = field(default_factory=set)
    broken: dict[str, set[str]] = field(default_factory=dict)  # verbs that fail, by box
    seconds: float = 0.2  # that an activation takes
    go: threading.Event = field(default_factory=threading.Event)  # until it is set, no verb `paused` ends
    paused: str = "release"
    says: str = "a chat completion comes back empty"  # of a bad release
    calls: list[tuple[str, str]] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    back: list[str] = field(default_factory=list)
    given_back: dict[str, list[str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    most_down: int = 0

    def folder(self, path: Path, entry: Mapping[str, Any] | None = None, **rollout: Any) -> Path:
        data = {**SERVES, **({"serve": [entry]} if entry else {}), "rollout": rollout}
        return self.boxes.folder(path, **{name.replace("-", "_"): data for name in self.boxes.facts})

    def kit(self, name: str, verb: str, spec: dict[str, Any]) -> dict[str, Any]:
        if verb == "job":
            verb, spec = spec["verb"], spec["spec"]
        self.calls.append((name, verb))
        if verb in self.broken.get(name, ()):
            raise Failure(f"no {verb} today", "try tomorrow")
        if verb == self.paused:
            self.go.wait(120)
        answer: dict[str, Any] = getattr(self, f"_{verb}")(name, spec)
        return answer

    def verbs(self, name: str) -> list[str]:
        return [verb for box, verb in self.calls if box == name]

    def lock_of(self, name: str) -> Path:
        return self.root / name / "lock.json"

    def _lock(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        home = self.root / name
        home.mkdir(exist_ok=True)
        with _one_at_a_time, pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "STATE", str(home))
            patch.setattr(state, "JOURNAL", str(home / "journal.jsonl"))
            patch.setattr(lock, "PATH", str(self.lock_of(name)))
            patch.setattr(lock, "GUARD", str(home / "guard"))
            return lock.run(spec)

    def _release(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"staged": True, "repaired": []}

    def _activate(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        self.switched.append(name)
        self.replaced[name] = spec["replaces"]
        self.down.add(name)
        self.most_down = max(self.most_down, len(self.down))
        time.sleep(self.seconds)
        self.down.discard(name)
        if name in self.bad:
            raise Failure(self.says, f"check the checkpoint; release {OLD} serves again")
        self._now(name, spec["digest"])
        return {"restarted": True, "seconds": self.seconds, "gate": {"completion": "42"}, "warnings": []}

    def _rollback(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        assert spec.get("hold", True) is (spec["to"] is None)  # by hand it is held
        self.given_back[name] = spec.get("give_back") or []
        self.back.append(name)
        self._now(name, spec["to"] or OLD)
        return {"restarted": True, "seconds": self.seconds, "gate": {}, "warnings": []}

    def _undo(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        self.back.append(name)
        self.given_back[name] = self.replaced[name]
        self.boxes.facts[name] = served(None)
        return {"back": self.replaced[name]}

    def _restart(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"restarted": True, "seconds": self.seconds, "gate": {}, "warnings": []}

    def _serving(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        why = "its service is failed" if name in self.dying else ""
        found = self.boxes.facts[name]["instances"].get(MODEL, {}).get("current")
        return {
            "instances": {
                asked["name"]: {"serves": not why, "why": why, "current": found} for asked in spec["instances"]
            }
        }

    def _journal(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"events": [], "log": ["engine: started", "engine: token=hunter2-and-more is wrong"]}

    def _now(self, name: str, digest: str) -> None:
        facts = served(digest)
        self.boxes.facts[name] = facts


@contextlib.contextmanager
def rolling(root: Path, count: int = 0, **states: str | None) -> Iterator[Fleet]:
    """`count` boxes on the old release: box-1, box-2 …; or those named, each with what it serves."""
    current = {name.replace("_", "-"): digest for name, digest in states.items()}
    current = current or {f"box-{number}": OLD for number in range(1, count + 1)}
    root.mkdir(exist_ok=True)
    with boxes({name: served(digest) for name, digest in current.items()}) as found:
        fleet = Fleet(found, root)
        found.kit = fleet.kit
        fleet.go.set()
        yield fleet
        fleet.go.set()
