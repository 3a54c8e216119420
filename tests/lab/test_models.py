"""A model comes to boxes: one copy from outside, one from the controller, whatever is struck on the way."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hub import Hub, Mood
from tests.lab.model_fleet import MIB, MODELS, ModelFleet, flip, sha256, slow
from tests.lab.rollouts import MODEL, Fleet
from tests.lab.support import small_lab

pytestmark = pytest.mark.lab

SEED = 20260730
KILL_COSTS = 8 * MIB  # of what is on its way when the controller is killed


@contextlib.contextmanager
def model_fleet(count: int, name: str, network: int, home: Path) -> Iterator[ModelFleet]:
    """Boxes that serve the stand-in engine's own small model: later deploys bring a model and nothing else."""
    random.seed(SEED)
    boxes = [f"lab-{number}" for number in range(1, count + 1)]
    with small_lab(name, network, ["cpu-only"] * count) as lab, Hub() as hub:
        mirrors = {**lab.mirrors(), "hub": hub.url}
        folder = lab.standin_folder(home / "folder", {box: {"mirrors": mirrors} for box in boxes})
        env = {"GPUFLEET_STORE": str(home / "store"), "GPUFLEET_STALL_SECONDS": "5"}
        found = ModelFleet(Fleet(lab, folder, boxes), hub, env)
        done = found.deploy()
        assert done.code == 0, done.output
        yield found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFleet]:
    with model_fleet(3, "model", 84, tmp_path_factory.mktemp("models")) as found:
        found.publish("first", 3, 24 * MIB)
        yield found


def one_copy(fleet: ModelFleet) -> None:
    """The hub sends one copy, the controller about one; a box that comes later gets it from the others."""
    *early, last = fleet.boxes
    outside, controller = fleet.outside(), fleet.controller()
    done = fleet.deploy(*early)
    assert done.code == 0, done.output
    assert fleet.total <= fleet.outside() - outside <= fleet.total + MIB
    sent = fleet.controller() - controller
    assert fleet.total <= sent < fleet.total * 1.5 + len(early) * MIB, "SSH's and each box's other traffic included"
    fleet.whole(*early)
    outside, controller = fleet.outside(), fleet.controller()
    done = fleet.deploy()
    assert done.code == 0, done.output
    assert fleet.outside() == outside
    assert fleet.controller() - controller < fleet.total * 0.1 + len(fleet.boxes) * MIB
    assert list(fleet.came(done, last)) == ["other boxes"], done.output
    fleet.whole()
    nothing_to_do(fleet)


def nothing_to_do(fleet: ModelFleet) -> None:
    done = fleet.deploy()
    assert [done.state(box) for box in fleet.boxes] == ["serving, nothing to do"] * len(fleet.boxes), done.output


def one_piece(fleet: ModelFleet, box: str) -> None:
    """A flipped bit costs one piece, which another box has; what serves reads on what it read."""
    shards = sorted(name for name in fleet.files if name.endswith(".safetensors"))
    path = fleet.fleet.root(box) / fleet.directory()[1:] / random.choice(shards)
    before = path.stat().st_ino
    piece = flip(path)
    fleet.doubt(box)
    outside, controller = fleet.outside(), fleet.controller()
    done = fleet.deploy()
    assert done.code == 0, done.output
    said = [line for line in done.output.splitlines() if f"[{box}]" in line]
    assert any("was damaged on this box" in line for line in said), done.output
    assert any(f"1 file to come, {piece / MIB:.1f} MiB" in line for line in said), done.output
    assert fleet.came(done, box) == {"other boxes": round(piece / MIB, 1)}
    assert fleet.outside() == outside and fleet.controller() - controller < piece / 2 + len(fleet.boxes) * MIB
    assert path.stat().st_ino != before, "it is another file: what a service has open is not written to"
    fleet.whole()
    assert fleet.deploy().state(box) == "serving, nothing to do"


def struck(fleet: ModelFleet, revision: str, shards: int, size: int, kills: int) -> None:
    """The mirror stalls and cuts off, the controller is killed, a box loses its power, bits are flipped; it goes on."""
    fleet.publish(revision, shards, size)
    outside, controller = fleet.outside(), fleet.controller()
    victim, other = fleet.boxes[-1], fleet.boxes[0]
    # while it comes from outside
    fleet.hub.moods = [
        *(Mood(do, path="safetensors", at=random.randrange(size)) for do in ("stall", "cut", "stall")),
        slow(6 * MIB),
    ]
    for number in range(kills):
        until = outside + fleet.total * random.uniform(number, number + 1) / (kills + 1)
        fleet.kill_when(fleet.started(), lambda until=until: fleet.outside() > until)  # type: ignore[misc]
    # while it goes to the boxes
    enough = fleet.bytes_on(fleet.boxes) + fleet.total * random.uniform(0.2, 0.8)
    fleet.kill_when(fleet.started(), lambda: fleet.bytes_on(fleet.boxes) > enough)
    fleet.idle()
    parts = [path for box in fleet.boxes for path in fleet.held(box) if path.stat().st_size > MIB]
    flip(random.choice(parts))
    before = fleet.bytes_on([victim])
    process = fleet.started()
    while process.poll() is None and fleet.bytes_on([victim]) <= before:
        time.sleep(0.02)
    fleet.lab("kill", victim)
    said, _ = process.communicate(timeout=600)
    fleet.lab("start", victim)
    assert process.returncode in (0, 1), said
    parts = [path for path in fleet.held(other) if path.stat().st_size > MIB and path.stat().st_nlink == 1]
    if parts:
        flip(random.choice(parts))
    fleet.hub.moods = []
    done = fleet.deploy()
    assert done.code == 0, done.output
    fleet.whole()
    assert fleet.total <= fleet.outside() - outside <= fleet.total + (kills + 3) * KILL_COSTS
    assert fleet.controller() - controller < fleet.total * 2, "about one copy, and what struck it"
    nothing_to_do(fleet)


def damaged_on_the_controller(fleet: ModelFleet) -> None:
    """A bad disk of the controller: a box finds it, and only the piece comes from outside again."""
    stored = sorted((Path(fleet.env["GPUFLEET_STORE"])).glob("*/*/model-*.safetensors"))
    sums = {sha256(data) for data in fleet.files.values()}
    path = next(each for each in stored if each.parent.name in sums)
    piece = flip(path)
    for box in fleet.boxes:
        fleet.lab.sh(box, f"rm -r {MODELS}/{MODEL} {MODELS}/.store")
    outside = fleet.outside()
    done = fleet.deploy()
    assert done.code == 0, done.output
    assert "on this controller is damaged: it is mended" in done.output
    assert fleet.outside() - outside == piece
    fleet.whole()


def test_one_copy_comes_from_outside_and_leaves_the_controller(three: ModelFleet) -> None:
    one_copy(three)


@pytest.mark.large
def test_a_flipped_bit_is_found_and_one_piece_comes_again(three: ModelFleet) -> None:
    one_piece(three, "lab-2")


@pytest.mark.large
def test_a_damaged_file_of_the_controller_is_mended(three: ModelFleet) -> None:
    damaged_on_the_controller(three)


@pytest.mark.large  # two minutes of the default run's forty; the operations' tests strike boxes that are folders
def test_struck_at_random_points_it_goes_on(three: ModelFleet) -> None:
    struck(three, "second", 3, 24 * MIB, kills=2)


def test_what_no_model_has_is_freed_from_the_store_and_nothing_else(three: ModelFleet) -> None:
    stray = f"{MODELS}/.store/{'a' * 64}"
    for box in three.boxes:
        three.lab.sh(
            box, f"mkdir {stray} && echo x > {stray}/x.part && find {MODELS} -exec touch -d '2 days ago' {{}} +"
        )
    freed = three.fleet.command("gc", "--yes")
    assert freed.returncode == 0, freed.stdout
    assert three.lab.sh("lab-1", f"ls {MODELS}/.store").count("a" * 64) == 0
    three.whole()


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFleet]:
    with model_fleet(20, "mod20", 83, tmp_path_factory.mktemp("twenty")) as found:
        found.publish("first", 4, 50 * 10**6)
        yield found


@pytest.mark.large
def test_one_copy_of_two_hundred_megabytes_for_twenty_boxes(twenty: ModelFleet) -> None:
    one_copy(twenty)


@pytest.mark.large
def test_a_flipped_bit_on_one_of_twenty_boxes(twenty: ModelFleet) -> None:
    one_piece(twenty, "lab-7")


@pytest.mark.large
def test_twenty_boxes_are_struck_and_go_on(twenty: ModelFleet) -> None:
    for box in twenty.boxes:  # room for the next
        twenty.lab.sh(box, f"rm -r {MODELS}/{MODEL} {MODELS}/.store")
    struck(twenty, "second", 4, 50 * 10**6, kills=4)
    one_piece(twenty, "lab-13")
