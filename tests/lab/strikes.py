"""An activation on a box of the lab, stopped at a certain moment and struck there: killed, cut off, without power."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import boxes, nspawn, processes, state
from lab.paths import Settings
from tests.lab.clients import completes
from tests.lab.rollouts import BOOKS, HOME, MODEL, UNIT, Fleet
from tests.lab.support import wait_for

KIT = "/opt/gpufleet/kit/gpufleet-kit.pyz"
PROGRAM = "/root/struck.py"
# The kit, but for one thing: at the moment that it is told it stops itself, as the books are then.
STRUCK = f"""
import json, os, signal, sys
sys.path.insert(0, {KIT!r})
from hostkit import state

def reached(what):
    known = state.instance({MODEL!r}).get("activation") or {{}}
    if [known.get("step"), what] == wanted and not os.path.exists("/root/stopped"):
        open("/root/stopped", "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)

with open("/root/strike.json") as handle:
    wanted = json.load(handle)
state.reached = reached
from hostkit.__main__ import main
sys.exit(main())
"""
# Where one process after the other changes something of all boxes: lab.json.
LAB = threading.Lock()
ENDS = ("activated", "put-back", "left", "rolled-back", "restarted")
SETTLE_SECONDS = 180


@dataclass(frozen=True)
class Point:
    """A moment of an activation: when `step` is what the box's state says, before or after something is written.

    `state` is when a step is on the disk and not yet begun, `before state` when it is done and that not written.
    """

    step: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.step or 'nothing'}, {self.what}"


@dataclass
class Target:
    """A box of a fleet that has two good releases and a bad one of its instance.

    + specs: what the verb `activate` is told, by digest
    """

    fleet: Fleet
    box: str
    good: list[str]
    bad: str
    specs: dict[str, dict[str, Any]]
    seen: list[str] = field(default_factory=list)  # the journal's lines

    @property
    def where(self) -> Settings:
        return self.fleet.lab.where

    def path(self, place: str) -> Path:
        return self.fleet.root(self.box) / place.lstrip("/")

    def other(self) -> str:
        """The good release that does not serve now."""
        return next(digest for digest in self.good if digest != self.current())

    def current(self) -> str:
        return self.path(f"{HOME}/current").readlink().name

    def activate(self, digest: str, point: Point | None = None) -> subprocess.Popen[str]:
        """Call the kit as a deploy does, over a line of its own, and return at once."""
        self.path(PROGRAM).write_text(STRUCK)
        self.path("/root/strike.json").write_text(json.dumps([point.step, point.what] if point else None))
        self.path("/root/stopped").unlink(missing_ok=True)
        init = state.load(self.where).box(self.box).pid
        process = subprocess.Popen(
            ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "python3", PROGRAM, "job"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        spec = {**self.specs[digest], "instead_of": []}
        process.stdin.write(json.dumps({"verb": "activate", "spec": spec}) + "\n")
        process.stdin.close()
        return process

    def activated(self, digest: str) -> None:
        """The whole of it, which succeeds."""
        process = self.activate(digest)
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(60) == 0 and json.loads(said.splitlines()[-1])["event"] == "result", said

    def at_work(self) -> list[int]:
        """The processes of the box that activate, or go on with it."""
        found = (processes.read(pid) for pid in nspawn.members(self.where, self.box))
        return [each.pid for each in found if each and {"activate", "resume"} & set(each.arguments[-1:])]

    def is_stopped(self) -> bool:
        if not self.path("/root/stopped").exists():
            return False
        return any(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T" for pid in self.at_work())

    def lines(self) -> list[str]:
        return self.path(f"{BOOKS}/journal.jsonl").read_text().splitlines()

    def settle(self, may: set[str]) -> None:
        """Wait until the box serves a release that passed its gate; which is one of these, and its books are whole."""
        address, told = self.fleet.address(self.box), {"": ""}

        def quiet() -> bool:
            try:
                known = self.fleet.known(self.box)
                current = self.current()
            except (OSError, ValueError, KeyError):
                return False
            told[""] = f"{current} of {may}, {known}"
            return (
                not known.get("activation") and known["gated"] == current and not known["stale"] and not self.at_work()
            )

        try:
            wait_for(lambda: quiet() and completes(address, MODEL), SETTLE_SECONDS)
        except AssertionError:
            raise AssertionError(f"{self.box} did not settle: {told['']}") from None
        assert self.current() in may, told
        assert self.fleet.lab.sh(self.box, f"systemctl is-active {UNIT}") == "active"
        self.assert_books_whole()

    def assert_books_whole(self) -> None:
        """No line of the journal is lost or torn, and each activation that was begun has one end."""
        lines = self.lines()
        assert lines[: len(self.seen)] == self.seen, f"{self.box} lost lines of its journal"
        events = [json.loads(line) for line in lines]
        begun = {event["began"] for event in events if event["event"] == "activation"}
        ended = [event["began"] for event in events if event["event"] in ENDS]
        assert sorted(ended) == sorted(begun), (
            f"{self.box}: activations and their ends differ: {lines[len(self.seen) :]}"
        )
        self.seen = lines


def kill_kit(target: Target) -> None:
    """SIGKILL of what activates on the box."""
    for pid in target.at_work():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cut_power(target: Target) -> None:
    """The box is without power, and has it again."""
    with LAB:
        boxes.kill(target.where, target.box)
        boxes.start_again(target.where, target.box)


Caller = subprocess.Popen[str]
Strike = Callable[[Target, Caller], None]


def leave(caller: Caller) -> None:
    """SIGKILL of what called on the box, whose parent is `caller`."""
    for process in processes.every():
        if process.parent == caller.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    caller.kill()


def kit(target: Target, caller: Caller) -> None:
    """The hostkit is killed; whoever called it is told so."""
    kill_kit(target)
    caller.wait(120)


def power(target: Target, caller: Caller) -> None:
    cut_power(target)
    caller.wait(120)


def controller(target: Target, caller: Caller) -> None:
    """Whoever called is gone; what runs on the box is not told."""
    leave(caller)
    caller.wait(120)
    for pid in target.at_work():
        os.kill(pid, signal.SIGCONT)


STRIKES: dict[str, Strike] = {"kit": kit, "power": power, "controller": controller}


def struck(target: Target, strike: str, point: Point, bad: bool) -> str:
    """One activation, struck at a point. Returns what became of it. Raises AssertionError."""
    before, to = target.current(), target.bad if bad else target.other()
    caller = target.activate(to, point)
    wait_for(lambda: target.is_stopped() or caller.poll() is not None, 120)
    if caller.poll() is not None:
        assert caller.stdout is not None
        raise AssertionError(f"it never came to {point}: {caller.stdout.read()}")
    STRIKES[strike](target, caller)
    target.settle({before} if bad else {before, to})
    if bad:
        return "as before"
    ended = "new" if target.current() == to else "as before"
    if ended == "as before":
        target.activated(to)  # a rerun converges
        target.settle({to})
    return ended


def struck_at_random(target: Target, seed: str, number: int) -> str:
    """One activation, struck once or twice at any moment: the second strike often meets what goes on with it.

    Returns what was done, for whoever looks for a failure's cause. Raises AssertionError.
    """
    dice = random.Random(f"{seed} {number}")
    before, bad = target.current(), dice.random() < 0.3
    to = target.bad if bad else target.other()
    caller, told = target.activate(to), "bad" if bad else "good"
    try:
        for _ in range(dice.choice([1, 1, 2])):
            wait, strike = dice.uniform(0, 4), dice.choice(sorted(STRIKES))
            told += f", {strike} after {wait:.2f} s"
            time.sleep(wait)
            if strike == "controller":
                leave(caller)
            else:
                {"kit": kill_kit, "power": cut_power}[strike](target)
        caller.wait(SETTLE_SECONDS)
        target.settle({before} if bad else {before, to})
    except Exception as error:
        raise AssertionError(f"{told}: {error}") from error
    return f"{told}: {'as before' if target.current() == before else 'new'}"


def at_once(
    targets: list[Target], work: Iterator[tuple[Any, ...]], one: Callable[..., str]
) -> tuple[list[str], list[str]]:
    """Do all of the work, on several boxes at once; returns what was done, and what failed, a line each."""
    done: list[str] = []
    failed: list[str] = []
    turn = threading.Lock()

    def worker(target: Target) -> None:
        while True:
            with turn:
                item = next(work, None)
            if item is None:
                return
            words = ", ".join(str(part) for part in item)
            try:
                done.append(f"{target.box}: {words}: {one(target, *item)}")
            except Exception as error:
                failed.append(f"{target.box}: {words}: {type(error).__name__}: {error}")
                return  # what a box is like after a failure says nothing

    threads = [threading.Thread(target=worker, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done, failed
