"""The way back of an activation that failed: to the last release that passed its gate, by that release's own gate.

Units of the owner's that it stopped run again; where they served in place of the instance, only they come back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Optional

from hostkit import events, gate, gates, replaced, retire, switch, systemd
from hostkit.books import UNDO
from hostkit.errors import Failure
from hostkit.releases import current_release
from hostkit.roots import Roots

if TYPE_CHECKING:
    from hostkit.activation import Activation

START_SECONDS = 1800  # of a release whose gate is not known


def after(activation: "Activation", failure: Failure) -> None:
    """Undo what `activation` did before `failure`, which then says at its end what serves now."""
    books, record = activation.books, activation.books.record
    gating = record["step"] == "gating"
    back, same = record["touched"] and activation.restart, record["from"] == record["to"]
    event, told = "gate-failed" if gating else "activation-failed", {"step": record["step"], "cause": failure.cause}
    books.careful(lambda: books.line(event, back=release_to_go_to(activation) if back else None, **told))
    if back and (record["instead"] or not (gating and same)):
        release_before(activation, failure)
        return
    # Nothing was stopped yet, or what serves is what served before: there is nothing better to go back to.
    failure.remedy += "; the instance is left as it is" if gating else as_before(activation)
    resume_others(activation, failure)
    stale = {"stale": True} if gating or back else {}
    books.careful(lambda: books.close("left", told, **stale))
    tell_trouble(activation, failure)


def release_to_go_to(activation: "Activation") -> "Optional[str]":
    """None when there is none, or what served before was no release but a unit of the owner's."""
    record = activation.books.record
    back = record["from"]
    return back if switch.is_staged(activation.name, back) and not record["instead"] else None


def as_before(activation: "Activation") -> str:
    current = current_release(Roots(), switch.home_of(activation.name))
    if current and systemd.show(activation.unit)["active"] == "active":
        return "; nothing was stopped, release {} serves as before".format(current)
    return "; nothing was changed"


def release_before(activation: "Activation", failure: Failure) -> dict:
    """Put back and gate what last passed its gate; with no such release the instance is stopped and not current.

    Where even that fails, the record stays in the state: gpufleet-resume tries again. Returns {"back": release, "ok":
    whether what is to serve now does, "cause": why not, where it does not}.
    """
    books, name, back = activation.books, activation.name, release_to_go_to(activation)
    told: dict = {"back": back, "ok": False}
    fields: dict = {"stale": True}
    try:
        books.careful(lambda: books.step("putting-back", touched=True))
        if back is None:
            retire.take_off(name)
            failure.remedy += "" if books.record["instead"] else "; there is no release before it"
            failure.remedy += "; the instance is stopped"
            told, fields = {"back": None, "ok": True}, {"stale": False, "gated": None}
            if books.record.get("verb") == UNDO:
                fields["replaced"] = None  # nothing is left to be given back
        else:
            events.log("putting release {} back".format(back))
            switch.to(name, back)
            before, began, moment = systemd.show(activation.unit)["pid"], time.monotonic(), time.time()
            systemd.restart(activation.unit)
            books.careful(lambda: books.step("gating-back"))
            try:
                answer = gated(activation, back, moment, before)
            except Failure as second:
                failure.remedy += "; release {} was put back and does not answer: {}".format(back, second.cause)
                told["cause"] = second.cause
            else:
                failure.remedy += "; release {} serves again".format(back)
                measured = activation.measured(answer, began)
                told.update(measured, ok=True)
                fields = {"stale": False, "history": books.history(back, "put back", answer, measured)}
        why = resume_others(activation, failure)
        if why and back is None:
            told.update(ok=False, cause=why)
    except Exception as error:
        failure.remedy += "; putting back failed, too: {}".format(error)
        told.update(ok=False, cause=str(error))
    else:
        books.careful(lambda: books.close("put-back", told, **fields))
    tell_trouble(activation, failure)
    return told


def gated(activation: "Activation", digest: str, moment: float, before: Optional[int]) -> dict:
    """By the release's own gate; of one that an older version activated, only that it answers."""
    kept, unit, known = gates.read(activation.name, digest), activation.unit, activation.books.known
    if kept:
        return gate.run(unit, kept["port"], kept["gate"], moment, before, history=activation.books.past(digest))
    port = int(known.get("port") or activation.spec.get("port") or 0)
    wanted = activation.spec.get("gate") or {"host": "127.0.0.1", "timeout": START_SECONDS}
    gate.wait(unit, port, wanted, moment, before)
    return {}


def resume_others(activation: "Activation", failure: Failure) -> Optional[str]:
    """Start what was stopped for the instance: others that were to leave the box, and units of the owner's.

    Returns why a unit that was started does not serve; None when all do. Raises Failure when one cannot be started.
    """
    if not activation.books.record["touched"]:
        return None
    for other in activation.leaving:
        systemd.restart(other)
        failure.remedy += "; {} runs again".format(other)
    units, started, failed = activation.books.record["replaced"], [], []  # type: ignore[var-annotated]
    wrong: list = []
    for unit, kept in units.items():
        with replaced.told(wrong):  # enabled still, unless the instance had passed its gate
            replaced.enable_again(unit, kept)
    failure.remedy += "".join("; {}".format(said) for said in wrong)
    for unit, kept in units.items():
        with replaced.told(failed):  # one that cannot be started keeps no other from it
            started += replaced.start({unit: kept})
    try:
        replaced.wait({unit: units[unit] for unit in started})
    except Failure as second:
        failure.remedy += "; {} was started again, but {}".format(", ".join(started), second.cause)
        wrong.append(second.cause)
    else:
        failure.remedy += "".join("; {} runs again".format(unit) for unit in started)
    if failed:
        raise Failure("; ".join(failed), "gpufleet-resume tries it again")
    return "; ".join(wrong) or None


def tell_trouble(activation: "Activation", failure: Failure) -> None:
    failure.remedy += "".join("; could not be written down: {}".format(said) for said in activation.books.trouble)
