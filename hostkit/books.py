"""What state.json and the journal say of one activation: each step before it is begun, its end so that none is lost."""

from __future__ import annotations

import time
from typing import Callable, Optional

from hostkit import gates, replaced, retire, state, switch, taken
from hostkit.releases import current_release
from hostkit.roots import Roots

HISTORY = 20
COMMITTING = "committing"
# What an activation that passed its gate is called in the journal and, with a blank, in the history.
PASSED = {"activate": "activated", "rollback": "rolled-back", "restart": "restarted"}
UNDO = "undo"  # it passed its gate, and goes all the same; see hostkit.undo
# Of units of the owner's, in a record that has none; those of an older version have no such keys.
NOBODY: dict = {"replaces": [], "replaced": {}, "instead": False}


def record(spec: dict, known: dict, verb: str, restart: bool = True, by: Optional[str] = None) -> dict:
    """What state.json says of an activation that is about to begin.

    + from: what last passed its gate, to go back to; where the state was lost, what serves: it is gated on the way back
    + stopped: when the service that served was stopped (seconds since the epoch); null before, and when none served
    + touched: something was stopped already, by this activation or by one before it that was cut off
    + replaces: units of the owner's whose place it takes; replaced: what they were before, see hostkit.replaced
    + instead: one of them served, and the instance did not: they come back when it fails, not a release of its own
    """
    unfinished, gated = known.get("activation") or {}, known.get("gated")
    if not known:
        gated = current_release(Roots(), switch.home_of(spec["instance"]))
    return {
        "to": spec["digest"],
        "from": gated if switch.is_staged(spec["instance"], gated) else None,
        "step": "staged",
        "leaving": list(spec.get("instead_of") or []),
        "began": round(time.time(), 3),
        "attempts": 1,
        "run": spec.get("run"),
        "verb": verb,
        "by": by,
        "restart": restart,
        "stopped": unfinished.get("stopped"),
        "touched": bool(unfinished.get("touched")),
        "replaces": list(spec.get("replaces") or []),
        "replaced": dict(unfinished.get("replaced") or {}),
        "instead": bool(unfinished.get("instead")),
    }


class Books:
    """Of one activation. + known: what the state says of the instance; + record: of its activation"""

    def __init__(self, name: str, known: dict, begun: dict) -> None:
        self.name, self.known, self.record = name, known, {**NOBODY, **begun}
        self.trouble: list = []  # what could not be written down

    def step(self, step: str, **more: object) -> None:
        """On the disk before the step is begun; what cannot be written down is not begun."""
        begun = {**self.record, "step": step, **more}
        stale = {"stale": True} if step == "stopping" and begun["restart"] else {}
        state.update(self.name, activation=begun, **stale)
        self.line("activation", step=step, run=begun["run"])
        self.record = begun

    def line(self, event: str, **told: object) -> None:
        state.journal(event, instance=self.name, digest=self.record["to"], began=self.record["began"], **told)

    def past(self, digest: str) -> list:
        """The last activations with the model of this release: another one's speed, by the same name, says nothing."""
        model = self.model(digest)
        return [line for line in self.known.get("history") or [] if line.get("model") == model]

    def model(self, digest: str) -> Optional[str]:
        return (gates.read(self.name, digest) or {}).get("model")

    def history(self, digest: str, outcome: str, answer: dict, measured: dict) -> list:
        """The instance's last activations, with this one: what serves since, and what it took."""
        speed = answer.get("tokens_per_second")
        line = {"at": state.now(), "digest": digest, "outcome": outcome, "tokens_per_second": speed, **measured}
        line["model"] = self.model(digest)
        return [*(self.known.get("history") or []), line][-HISTORY:]

    def close(self, event: str, told: dict, **fields: object) -> None:
        """Write the end into the state, and only then the rest: `finish` does that also when this is cut off here."""
        line = {"event": event, "instance": self.name, "digest": self.record["to"], "began": self.record["began"]}
        self.record.update(step=COMMITTING, line={**line, **told})
        state.update(self.name, activation=self.record, **fields)
        self.careful(lambda: finish(self.name, self.record))

    def careful(self, write: Callable[[], object]) -> None:
        """For what must not keep the box from serving: a full disk, say."""
        try:
            write()
        except Exception as error:
            self.trouble.append(str(error))


def settled(name: str) -> dict:
    """What the state says of an instance, after the end of an activation that was cut off in its very last step."""
    known = state.instance(name)
    if (known.get("activation") or {}).get("step") == COMMITTING:
        finish(name, known["activation"])
        known = state.instance(name)
    return known


def finish(name: str, begun: dict) -> None:
    """The last of an activation whose end is in the state: its line in the journal, and what leaves the box."""
    line = begun["line"]
    event = line["event"]
    once(**line)
    if event in PASSED.values():
        for other in begun["leaving"]:
            retire.leave(other)
            once("retired", instance=other, began=begun["began"])
        units = begun.get("replaced") or {}
        replaced.settle(units)
        if taken.is_kept(units):
            once("replaced", instance=name, digest=begun["to"], began=begun["began"], units=sorted(units))
    held = state.instance(name).get("held") or {}
    if event == PASSED["rollback"] and held.get("digest") == begun["to"]:
        once("held", instance=name, digest=begun["to"], began=begun["began"], by=held.get("by"))
    state.update(name, activation=None)


def once(event: str, **told: object) -> None:
    """A line of the journal, unless this activation wrote it before it was cut off."""
    if not state.journaled(event, instance=told["instance"], began=told["began"]):
        state.journal(event, **told)
