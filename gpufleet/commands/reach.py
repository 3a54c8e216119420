"""What commands on boxes share: reaching them, an errand on one instance after another, how it ends."""

from __future__ import annotations

import getpass
import json
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from gpufleet import masking, paths, target
from gpufleet.commands.folder import enter
from gpufleet.errors import BOX_FAILED, DONE, LOCKED, BoxError
from gpufleet.fleet import Fleet
from gpufleet.status_view import locked
from gpufleet.terminal import plain

BROKEN = "the connection broke off"  # how operations/remote.py begins to say so


def fleet_of(inventory: Path) -> Fleet:
    """The fleet of an inventory, in its folder from now on. Raises ConfigError, Wrong."""
    from gpufleet.inventory import from_file

    return from_file(enter(inventory))


def connect(fleet: Fleet, names: Sequence[str], **more: Any) -> Any:
    """`operations.errands.Boxes` of these names."""
    from operations.errands import Boxes  # the only way to a box; it brings pyinfra and paramiko, so only here

    return Boxes(fleet, names, **more)


def shown(fleet: Fleet) -> str:
    """The inventory as the caller has to write it in a command."""
    return shlex.quote(str(paths.as_given(fleet.inventory)))


def say(line: str, err: bool = False) -> None:
    """A line of a box: without its secrets, and without what a terminal would obey."""
    click.echo(plain(masking.text(line)), err=err)


def print_json(document: Mapping[str, Any], indent: int | None = 1) -> None:
    click.echo(json.dumps(document, indent=indent))


def finish(boxes: Any, inventory: str, code: int = DONE) -> NoReturn:
    """Say what failed, a line each; end with 1 when something did, else with `code`."""
    for error in boxes.failures.values():
        say(str(explained(error, inventory)), err=True)
    sys.exit(BOX_FAILED if boxes.failures else code)


def explained(error: BoxError, inventory: str) -> BoxError:
    """What broke off in the middle was not a deploy, and is not mended by one."""
    if not error.cause.startswith(BROKEN):
        return error
    remedy = f"what was begun goes on there: `gpufleet status {inventory} --limit {error.box}` shows it"
    return BoxError(error.box, error.cause, remedy)


def whoami() -> str:
    """Who asks, for the books of the box: `anna@laptop`."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return f"somebody@{socket.gethostname()}"


@dataclass(frozen=True)
class Errand:
    """Something to be done on the instances of one box, one after another.

    + facts: what the look at it told; + names: the instances that are meant
    + inventory: as the caller has to write it; + path: as it is; + reports: where the reports of its runs lie
    """

    boxes: Any
    box: str
    facts: Mapping[str, Any]
    names: list[str]
    inventory: str
    path: Path
    reports: Path

    def known(self, instance: str) -> Mapping[str, Any]:
        """What the look told of an instance."""
        found: Mapping[str, Any] = self.facts["instances"][instance]
        return found

    def call(self, verb: str, spec: Mapping[str, Any], job: bool = False) -> dict[str, Any] | None:
        """Run a verb there; None when it failed, and then nothing more can be called.

        + job: in a unit of its own, which goes on when this program ends; its lines are shown as they come
        """
        asked = {"verb": verb, "spec": dict(spec)} if job else dict(spec)
        answers = self.boxes.call(
            "job" if job else verb, {self.box: asked}, say=lambda box, line: say(f"{box}: {line}")
        )
        found: dict[str, Any] | None = answers.get(self.box)
        return found

    def each(self, names: Sequence[str], action: Callable[[str], bool]) -> NoReturn:
        """`action` on one instance after another, and the end of the program; the first that fails is the last.

        + action: whether it went well
        """
        for number, name in enumerate(names):
            if not action(name):
                if left := names[number + 1 :]:
                    say(f"{self.box}: not done after that failure: {', '.join(left)}", err=True)
                break
        finish(self.boxes, self.inventory)

    @contextmanager
    def locked(self, verb: str) -> Iterator[None]:
        """Hold the fleet's lock, as a deploy does; end with 4 when another run does, 1 when the box does not answer."""
        what = f"{verb} of {', '.join(f'{self.box}/{name}' for name in self.names)} of {self.path}"
        try:
            other = self.boxes.lock(self.box, self.reports, what)
            if other:
                say(
                    f"gpufleet: {self.box} is {locked(other)}. No {verb} now: wait for it; if it is dead, "
                    f"`gpufleet unlock {self.inventory}`",
                    err=True,
                )
                sys.exit(LOCKED)
            yield
        except BoxError as error:
            say(str(explained(error, self.inventory)), err=True)
            sys.exit(BOX_FAILED)
        finally:
            self.boxes.unlock()


def errand(inventory: Path, word: str, **more: Any) -> Errand:
    """Connect to the box of BOX[/INSTANCE], and find what is meant. Raises ConfigError, Wrong; ends with 1."""
    fleet = fleet_of(inventory)
    meant = target.parse(fleet, word)
    boxes = connect(fleet, [meant.box], **more)
    if meant.box not in boxes.facts:
        finish(boxes, shown(fleet), BOX_FAILED)
    facts = boxes.facts[meant.box]
    return Errand(
        boxes, meant.box, facts, target.instances_of(facts, meant), shown(fleet), fleet.inventory, fleet.reports_folder
    )


def took(answer: Mapping[str, Any]) -> str:
    """`38.2 s, of which 31.0 s without an answer`."""
    words = f"{answer['seconds']:.1f} s" if answer.get("seconds") is not None else "done"
    down = answer.get("down_seconds")
    return f"{words}, {down:.1f} s of it down" if down is not None else words


def warnings(who: str, answer: Mapping[str, Any]) -> Iterator[str]:
    gate = answer.get("gate") or {}
    for line in dict.fromkeys([*(answer.get("warnings") or []), *(gate.get("warnings") or [])]):
        yield f"{who}: warning: {line}"
