"""An activation that is struck, at whatever moment: the box ends on the old or the new release, gated and serving."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from lab import nspawn, processes
from tests.lab.rollouts import HOME, Fleet
from tests.lab.strikes import STRIKES, Point, Target, at_once, struck, struck_at_random
from tests.lab.support import small_lab, started, wait_for

# Minutes of the default run, which has to end within forty: there unit tests stop an activation at each of its
# moments.
pytestmark = [pytest.mark.lab, pytest.mark.large]

BOXES = ["lab-1", "lab-2", "lab-3"]
# Each step as the box's state has it: on the disk before it is begun. What is struck is both sides of each.
FORWARD: list[str | None] = [None, "staged", "warming", "checking", "stopping", "switching", "starting", "gating"]
BACK: list[str | None] = ["putting-back", "gating-back"]
CLOSING = "committing"
BEGUN, DONE = "state", "before state"
ARGS = "max-num-seqs"
Item = tuple[str, Point, bool]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with small_lab("strk", 94, ["cpu-only"] * len(BOXES)) as lab:
        yield Fleet(lab, lab.standin_folder(tmp_path_factory.mktemp("home"), {box: {} for box in BOXES}), BOXES)


@pytest.fixture(scope="module")
def targets(fleet: Fleet) -> list[Target]:
    """Each box with two releases that passed their gate; and a bad one is there, which the first has tried."""
    good = []
    for count in (3, 4):
        fleet.want(serve_args={ARGS: count})
        done = fleet.deploy()
        assert done.code == 0, done.output
        good.append(fleet.releases()[BOXES[0]])
    fleet.want(serve_args={ARGS: 5}, serve_env={"STANDIN": "fail-completions"})
    done = fleet.deploy()
    assert done.code == 1, done.output
    fleet.want(serve_args={ARGS: 4})
    folder = fleet.root(BOXES[0]) / HOME[1:] / "gates"
    specs = {path.stem: dict(json.loads(path.read_text())) for path in folder.glob("*.json")}
    (bad,) = set(specs) - set(good)
    return [Target(fleet, box, good, bad, specs) for box in BOXES]


def quick() -> Iterator[Item]:
    """Each step once from either side, by one strike or the other."""
    for step in [*FORWARD, CLOSING]:
        yield "kit", Point(step, DONE), False
    for step in [*FORWARD[1:], CLOSING]:
        yield "power", Point(step, BEGUN), False
    for step in ("staged", "stopping", "gating"):
        yield "controller", Point(step, BEGUN), False
    for step in BACK:
        yield "kit", Point(step, DONE), True
        yield "power", Point(step, BEGUN), True


def every() -> Iterator[Item]:
    """Each step from both sides by each strike, forward and back."""
    for strike in STRIKES:
        for what in (DONE, BEGUN):
            for step in [*FORWARD, CLOSING]:
                if (step, what) != (None, BEGUN):  # that is when it has ended
                    yield strike, Point(step, what), False
            for step in [*BACK, CLOSING]:
                yield strike, Point(step, what), True


def assert_all(targets: list[Target], work: Iterator[tuple[object, ...]], one: Callable[..., str], count: int) -> None:
    done, failed = at_once(targets, work, one)
    print("\n".join(done))
    assert not failed, "\n".join(failed)
    assert len(done) == count


def test_struck_at_each_step(targets: list[Target]) -> None:
    assert_all(targets, quick(), struck, len(list(quick())))


def test_struck_at_each_step_from_both_sides_by_everything(targets: list[Target]) -> None:
    assert_all(targets, every(), struck, len(list(every())))


def at_random(targets: list[Target], count: int) -> None:
    seed = os.environ.get("GPUFLEET_SEED") or secrets.token_hex(4)
    print(f"GPUFLEET_SEED={seed}")  # pytest shows it with a failure
    assert_all(targets, ((seed, number) for number in range(count)), struck_at_random, count)


def test_struck_at_a_few_random_moments(targets: list[Target]) -> None:
    at_random(targets, 6)


def test_struck_at_many_random_moments(targets: list[Target]) -> None:
    """As many as GPUFLEET_STRIKES says: three hundred take half an hour."""
    at_random(targets, int(os.environ.get("GPUFLEET_STRIKES", "300")))


def kill(process: subprocess.Popen[str], target: Target) -> None:
    """SIGKILL of the controller."""
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


def cut_ssh(process: subprocess.Popen[str], target: Target) -> None:
    """The box's end of the connection is gone; the deploy says so in one line."""
    found = (processes.read(pid) for pid in nspawn.members(target.where, target.box))
    for session in [each.pid for each in found if each and "".join(each.arguments[:1]).startswith("sshd: root")]:
        os.kill(session, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    (line,) = [line for line in output.splitlines() if line.startswith(f"{target.box}: ")]
    assert "connection broke off" in line, output


@pytest.mark.parametrize("strike", [kill, cut_ssh])
def test_the_box_goes_on_without_its_controller(
    fleet: Fleet, targets: list[Target], strike: Callable[[subprocess.Popen[str], Target], None]
) -> None:
    target, before = targets[0], targets[0].current()
    count = 6 if strike is kill else 7
    fleet.want(serve_args={ARGS: count}, serve_env={"STANDIN_START_SECONDS": "3"})
    process = started(fleet.folder, ["-y", "--limit", target.box])
    wait_for(lambda: (fleet.known(target.box).get("activation") or {}).get("step") == "gating", 120)
    strike(process, target)
    new = (fleet.known(target.box)["activation"] or {}).get("to") or target.current()
    assert new != before
    target.settle({new})
    assert f"{ARGS}: {count}" in target.path(f"{HOME}/current/serve.yaml").read_text()
    done = fleet.deploy("--limit", target.box)
    assert (done.code, done.state(target.box)) == (0, "serving, nothing to do"), done.output


def test_then_a_deploy_converges(fleet: Fleet, targets: list[Target]) -> None:
    fleet.want(serve_args={ARGS: 4})
    done = fleet.deploy()
    assert done.code == 0, done.output
    assert set(fleet.releases().values()) == {targets[0].good[1]}
    done = fleet.deploy()
    assert [done.state(box) for box in BOXES] == ["serving, nothing to do"] * len(BOXES), done.output
    for target in targets:
        target.settle({targets[0].good[1]})
