"""Switching one instance to a release as a state machine, which can be cut off at any moment and gone on with.

    staged → warming → checking → stopping → switching → starting → gating → committing
    any failure from `stopping` on:  putting-back → gating-back → committing

Each step is in state.json, on the disk, before it is begun. Whoever finds one there (gpufleet-resume at the next boot
or at once, the next deploy) does it again from the start, or puts back what last passed its gate. So an instance ends
on a release that passed its gate, whatever happened in between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Iterator

from hostkit import (
    events,
    files,
    gate,
    gates,
    listeners,
    put_back,
    replaced,
    state,
    switch,
    systemd,
    taken,
    vram_check,
    warm,
)
from hostkit.books import PASSED, Books
from hostkit.errors import Failure
from hostkit.releases import unit_name
from hostkit.roots import Roots


class Activation:
    """One activation, from its record on.

    + known: what state.json says of the instance; `begun`: the record, see hostkit.books
    + hold: whether an instance that was rolled back is held
    """

    def __init__(self, spec: dict, known: dict, begun: dict, hold: bool = True) -> None:
        self.spec, self.hold = spec, hold
        self.name, self.unit = spec["instance"], unit_name(spec["instance"])
        self.books = Books(self.name, known, begun)
        self.restart: bool = begun["restart"]
        self.leaving = [unit_name(other) for other in begun["leaving"]]
        # With those that an activation before it stopped, which was cut off.
        self.replaces = list(dict.fromkeys([*self.books.record["replaces"], *self.books.record["replaced"]]))
        self.began = time.monotonic()

    def run(self) -> dict:
        """Returns {"restarted", "seconds", "down_seconds", "ready_seconds", "gate", "warnings"}.

        Raises Failure after the release before serves again, or, when there is none, after the service is stopped.
        """
        with finished_by_resume():
            try:
                return self.forward()
            except Exception as error:
                failure = as_failure(error)
                put_back.after(self, failure)
                raise failure from None

    def forward(self) -> dict:
        spec, books, warnings = self.spec, self.books, []
        books.step("staged")
        check_whole(spec["runtime"], spec["model"])
        if self.restart:
            books.step("warming")
            warnings += warm.run(spec.get("warm") or [], spec["runtime"])
            books.step("checking")
            self.check()
        if self.restart or self.leaving or replaced.running(self.replaces):
            self.stop()
        books.step("switching")
        switch.to(self.name, spec["digest"])
        began, moment = time.monotonic(), time.time()
        if self.restart:
            books.step("starting")
            events.log("starting {} on release {}".format(self.unit, spec["digest"]))
            systemd.restart(self.unit)
        books.step("gating")
        answer = gate.run(self.unit, spec["port"], spec["gate"], moment, None, history=self.books.past(spec["digest"]))
        measured = self.measured(answer, began)
        self.commit(answer, measured)
        warnings += list(answer.get("warnings") or []) + books.trouble
        return {"restarted": self.restart, "seconds": self.seconds(), "gate": answer, "warnings": warnings, **measured}

    def check(self) -> None:
        """What has to be free, while all still serves."""
        units = [self.unit, *self.leaving, *replaced.running(self.replaces)]
        refuse_foreign_listener(self.spec["port"], units)
        running = any(systemd.show(unit)["active"] != "inactive" for unit in units)
        vram_check.check(self.spec.get("gpus") or [], units, running)

    def stop(self) -> None:
        books, own = self.books, systemd.show(self.unit)["active"] == "active"
        units = replaced.before(self.replaces, books.record["replaced"])
        found = {unit: kept for unit, kept in units.items() if unit not in books.record["replaced"] and kept["active"]}
        if found:
            held = any(books.known.get("port") in kept["ports"] for kept in found.values())
            books.record["instead"] = books.record["instead"] or held or not own
        if ((self.restart and own) or found) and books.record["stopped"] is None:
            books.record["stopped"] = round(time.time(), 2)
        books.step("stopping", touched=True, replaced=units)
        replaced.stop(list(units))
        for other in self.leaving:
            events.log("stopping {}, which leaves".format(other))
            systemd.stop(other)
        if self.restart:
            systemd.stop(self.unit)

    def measured(self, answer: dict, began: float) -> dict:
        """Seconds from the stop to the first completion (null when none served before), and from the start to ready.

        + began: when it was started, by time.monotonic(), as `first_completion_at` of the gate's answer is
        """
        if not self.restart:
            return {"down_seconds": None, "ready_seconds": None}
        first, stopped = answer.get("first_completion_at") or time.monotonic(), self.books.record["stopped"]
        ready = answer.get("ready_seconds")
        # The stop may have been before a reboot: only the clock goes on over that.
        down = None if stopped is None else round(max(0.0, time.time() - (time.monotonic() - first) - stopped), 1)
        return {"down_seconds": down, "ready_seconds": round(first - began, 1) if ready is None else ready}

    def commit(self, answer: dict, measured: dict) -> None:
        """The release is the gated one from here on; then the books, and what it took the place of."""
        verb, digest, books = self.books.record["verb"], self.spec["digest"], self.books
        fields: dict = {"gated": digest, "stale": False, "port": self.spec["port"]}
        names = [*books.record["replaces"], *books.record["replaced"]]
        units = taken.together(books.known.get("replaced"), books.record["replaced"])
        units = taken.together(units, taken.by_others(self.name, names))
        if units:
            fields["replaced"] = units
        if self.restart:
            fields["history"] = books.history(digest, PASSED[verb].replace("-", " "), answer, measured)
        if verb == "rollback" and self.hold:
            fields["held"] = {"since": state.now(), "by": books.record["by"], "digest": digest}
        told = {"restarted": self.restart, "seconds": self.seconds(), "gate": answer, **measured}
        books.close(PASSED[verb], told, **fields)
        books.careful(self.prune)

    def prune(self) -> None:
        """Keep this release, the one that passed before it, which a rollback goes to, and the newest others."""
        passed = state.passed(state.instance(self.name))
        stay = [digest for digest in passed if switch.is_staged(self.name, digest)][:2]
        gates.prune(self.name, switch.prune(self.name, stay, int(self.spec.get("keep") or switch.KEEP)))

    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)


@contextlib.contextmanager
def finished_by_resume() -> "Iterator[None]":
    """`systemctl stop` of the job counts as its failure, so that gpufleet-resume takes over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_whole(runtime: str, model: str) -> None:
    """Raise Failure unless both are whole; a model that lies with the owner is a link, and has no mark of ours."""
    linked = os.path.islink(model) and os.path.isfile(os.path.join(model, "config.json"))
    for path, whole in ((runtime, files.is_complete(runtime)), (model, linked or files.is_complete(model))):
        if not whole:
            raise Failure("{} is not complete".format(path), "deploy again; it is installed before the switch")


def refuse_foreign_listener(port: int, units: list) -> None:
    holder = listeners.read(Roots())["ports"].get(str(port))
    if holder and holder.get("unit") not in units:
        raise Failure(
            "port {} is taken by {}".format(port, holder.get("unit") or holder.get("command") or "another program"),
            "stop it, or give the instance another port",
        )


def as_failure(error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    remedy = "see to what it names (space, permissions)" if isinstance(error, OSError) else "report this"
    return Failure(str(error) or repr(error), remedy)
