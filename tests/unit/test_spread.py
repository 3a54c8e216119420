"""Who gets what from whom: each file once from its origin, to every box, and no failure holds up the others."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.spread import (
    AT_ONCE,
    BUNDLE,
    CONTROLLER,
    ORIGINS,
    OUTSIDE,
    SLOW_SECONDS,
    SMALL,
    TINY,
    File,
    Flight,
    Move,
    Spread,
    Stuck,
    Wait,
    next_move,
)

BIG = 4 * SMALL


def files(*sizes: int) -> list[File]:
    return [File(f"f{number}", f"f{number}.whl", size) for number, size in enumerate(sizes)]


def spread(
    boxes: int, wanted: list[File], have: dict[str, list[str]] | None = None, origin: tuple[str, ...] = (CONTROLLER,)
) -> Spread:
    made = Spread()
    for name in (f"b{number}" for number in range(boxes)):
        made.join(name, wanted, (have or {}).get(name, []), {file.sha256: origin for file in wanted})
    return made


def move(made: Spread, box: str, now: float = 0) -> Move:
    found = next_move(made, box, now)
    assert isinstance(found, Move), found
    return found


# One decision


def test_first_copies_come_from_the_controller_two_at_a_time() -> None:
    made = spread(3, files(BIG, BIG + 1, BIG + 2))
    assert move(made, "b0") == Move(CONTROLLER, ("f2",)), "the largest first"
    made.begin("b0", move(made, "b0"), 0)
    assert move(made, "b1") == Move(CONTROLLER, ("f1",)), "not what is on its way already"
    made.begin("b1", move(made, "b1"), 0)
    assert next_move(made, "b2", 0) == Wait()
    made.end("b0", 1)
    made.got("b0", "f2", CONTROLLER)
    assert move(made, "b2") == Move(CONTROLLER, ("f0",)), "the rarest first: nobody has it"


def test_what_a_peer_has_comes_from_it_and_two_at_a_time() -> None:
    made = spread(5, files(BIG), {"b0": ["f0"]})
    for box in ("b1", "b2"):
        assert move(made, box) == Move("b0", ("f0",))
        made.begin(box, move(made, box), 0)
    assert next_move(made, "b3", 0) == Wait()
    made.end("b1", 1)
    made.got("b1", "f0", "b0")
    assert move(made, "b3").source in ("b0", "b1")
    made.begin("b3", Move("b0", ("f0",)), 1)
    assert move(made, "b4") == Move("b1", ("f0",)), "the one that serves least"


def test_small_files_go_together() -> None:
    made = spread(1, files(SMALL - 1, SMALL - 2, SMALL - 3, BIG, *[SMALL - 1] * 10))
    made.got("b0", "f3", CONTROLLER)
    bundle = move(made, "b0").files
    assert sum(made.files[each].size for each in bundle) <= BUNDLE and len(bundle) > 2
    assert move(spread(1, files(BIG, SMALL - 1)), "b0").files == ("f0",), "a large one alone"


def test_tiny_files_come_from_the_controller_at_once_whoever_has_them_and_count_for_nothing() -> None:
    made = spread(4, files(BIG, BIG, 10, TINY - 10, 0), {"b3": ["f2"]})
    for box in ("b0", "b1", "b2"):
        assert set(move(made, box).files) == {"f2", "f3"} and move(made, box).source == CONTROLLER
        made.begin(box, move(made, box), 0)
    assert move(made, "b3") == Move(CONTROLLER, ("f3",))
    made.got("b3", "f3", CONTROLLER)
    assert move(made, "b3") == Move(CONTROLLER, ("f0",)), "large ones as ever"


def test_a_tiny_file_that_the_controller_lacks_or_another_deploy_brings_comes_as_all_others_do() -> None:
    made = spread(2, files(10), {"b1": ["f0"]}, origin=(OUTSIDE,))
    assert move(made, "b0") == Move("b1", ("f0",))
    made = spread(2, files(10), {"b1": ["f0"]})
    made.later("b0", "f0")
    assert move(made, "b0") == Move("b1", ("f0",))


def test_nobody_waits_for_a_tiny_file_that_is_on_its_way_to_another() -> None:
    made = spread(2, files(TINY))
    made.join("b1", files(TINY, SMALL - 1), [], {each.sha256: (CONTROLLER,) for each in files(TINY, SMALL - 1)})
    made.begin("b0", move(made, "b0"), 0)
    assert set(move(made, "b1").files) == {"f0", "f1"}, "with the others, as it lacks more"


def test_many_tiny_files_are_given_on_like_all_others() -> None:
    made = spread(2, files(TINY, 10), {"b1": ["f0", "f1"]})
    assert move(made, "b0") == Move("b1", ("f0", "f1"))


def test_a_bundle_leaves_what_is_on_its_way() -> None:
    made = spread(2, files(SMALL - 1, SMALL - 2, SMALL - 3))
    made.flights["b0"] = Flight(CONTROLLER, ("f0",), 0)
    assert set(move(made, "b1").files) == {"f1", "f2"}


def test_without_peers_everything_comes_from_the_controller() -> None:
    made = Spread()
    for name in ("b0", "b1"):
        made.join(name, files(BIG), ["f0"] if name == "b0" else [], {"f0": (CONTROLLER,)}, sharing=False)
    assert move(made, "b1") == Move(CONTROLLER, ("f0",))


def test_a_peer_that_fails_two_boxes_is_left_and_one_that_reaches_nobody_asks_no_more() -> None:
    made = spread(6, files(BIG), {name: ["f0"] for name in ("b0", "b1", "b2")})
    made.failed_from("b3", "b0")
    assert move(made, "b3").source in ("b1", "b2")
    assert move(made, "b4").source == "b0"
    made.failed_from("b3", "b1")
    assert move(made, "b3") == Move(CONTROLLER, ("f0",)), "two failed it: it is alone"
    made.failed_from("b4", "b0")
    assert move(made, "b5").source == "b0", "what b3 says of b0 does not count"
    made.got("b3", "f0", "b2")
    assert move(made, "b5").source != "b0"


def test_a_damaged_copy_is_asked_for_elsewhere_and_its_holder_wants_it_again() -> None:
    made = spread(3, files(BIG, BIG), {"b0": ["f0"], "b1": ["f0"]})
    made.failed_from("b2", "b0", "f0")
    made.lost("b0", "f0")
    assert "f0" in made.wants["b0"]
    made.got("b2", "f1", CONTROLLER)
    assert move(made, "b2") == Move("b1", ("f0",))


def test_nobody_waits_for_a_box_on_a_bad_link() -> None:
    made = spread(3, files(BIG))
    made.best = 100e6
    made.flights["b0"] = Flight(CONTROLLER, ("f0",), since=0, done=1_000_000)
    assert next_move(made, "b1", SLOW_SECONDS) == Wait()
    assert move(made, "b1", SLOW_SECONDS + 1) == Move(CONTROLLER, ("f0",))


def test_the_fastest_transfer_from_an_origin_is_the_measure() -> None:
    made = spread(1, files(BIG))
    made.begin("b0", Move(CONTROLLER, ("f0",)), 0)
    made.flights["b0"].done = BIG
    made.end("b0", 2)
    assert made.best == BIG / 2


def test_a_file_that_nobody_can_give_any_more() -> None:
    made = spread(2, files(BIG), origin=(OUTSIDE,))
    made.failed_from("b0", OUTSIDE, "f0")
    assert next_move(made, "b0", 0) == Wait(), "b1 may get it"
    assert move(made, "b1") == Move(OUTSIDE, ("f0",))
    made.failed_from("b1", OUTSIDE, "f0")
    assert next_move(made, "b0", 0) == next_move(made, "b1", 0) == Stuck("f0")


def test_a_box_that_ends_gives_on_and_one_that_fails_does_not() -> None:
    made = spread(3, files(BIG), {"b0": ["f0"]})
    made.leave("b0")
    assert move(made, "b1").source == "b0"
    made.drop("b0")
    assert move(made, "b1").source == CONTROLLER


def test_a_box_that_is_no_peer_takes_all_the_same() -> None:
    made = spread(2, files(BIG, BIG), {"b0": ["f0"], "b1": ["f1"]})
    made.no_peer("b0")
    assert move(made, "b0").source == "b1" and move(made, "b1").source == CONTROLLER


def test_a_box_that_comes_back_for_more() -> None:
    made = spread(1, files(BIG))
    made.got("b0", "f0", CONTROLLER)
    made.leave("b0")
    made.join("b0", [File("other", "other.whl", 5)], [], {"other": (CONTROLLER,)})
    assert move(made, "b0") == Move(CONTROLLER, ("other",))


# Whole runs


def counts(file: File, origin: tuple[str, ...] = (CONTROLLER,)) -> bool:
    """Tiny ones may come from the controller to each box."""
    return CONTROLLER not in origin or not 0 < file.size <= TINY


@dataclass
class Run:
    """A run on paper: transfers end in any order, and end badly where the test says so."""

    spread: Spread
    chance: random.Random
    bad: float = 0.0  # how often a transfer between boxes fails
    dying: set[str] = field(default_factory=set)  # boxes that fail at some time
    no_way_out: set[str] = field(default_factory=set)  # boxes that reach nothing outside
    first: Counter[str] = field(default_factory=Counter)  # copies from origins, by file
    stuck: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    now: float = 0.0

    def go(self) -> None:
        at_work = set(self.spread.wants)
        while at_work:
            for box in self.chance.sample(sorted(at_work), len(at_work)):
                if box not in self.spread.flights:
                    self.decide(box, at_work)
            assert self.spread.flights or not at_work, "all of them wait for each other"
            if self.spread.flights:
                self.land(self.chance.choice(sorted(self.spread.flights)), at_work)

    def decide(self, box: str, at_work: set[str]) -> None:
        found = next_move(self.spread, box, self.now)
        if found is None:
            self.spread.leave(box)
            self.done.add(box)
            at_work.discard(box)
        elif isinstance(found, Stuck):
            self.spread.drop(box)
            self.stuck.add(box)
            at_work.discard(box)
        elif isinstance(found, Move):
            assert set(found.files) <= self.spread.wants[box]
            self.spread.begin(box, found, self.now)
            loads = Counter(flight.source for flight in self.spread.flights.values() if not flight.at_once)
            assert max(loads.values(), default=0) <= AT_ONCE

    def land(self, box: str, at_work: set[str]) -> None:
        flight = self.spread.flights[box]
        self.spread.end(box, self.now)
        if box in self.dying and self.chance.random() < 0.5:
            self.spread.drop(box)
            at_work.discard(box)
            return
        for sha256 in flight.files:
            if flight.source in ORIGINS:
                if flight.source == OUTSIDE and box in self.no_way_out:
                    self.spread.failed_from(box, OUTSIDE, sha256)
                    continue
                self.first[sha256] += counts(self.spread.files[sha256], self.spread.origins[sha256])
            elif self.chance.random() < self.bad:
                if self.chance.random() < 0.3:
                    self.spread.failed_from(box, flight.source, sha256)
                    self.spread.lost(flight.source, sha256)
                else:
                    self.spread.failed_from(box, flight.source)
                return
            self.spread.got(box, sha256, flight.source)


RUNS = st.tuples(
    st.integers(1, 8),
    st.lists(st.sampled_from([0, 10, TINY + 1, SMALL - 1, SMALL, BIG]), min_size=1, max_size=12),
    st.integers(0, 10**6),
)


@settings(max_examples=150, deadline=None)
@given(RUNS, st.sampled_from([(CONTROLLER,), (OUTSIDE,), (CONTROLLER, OUTSIDE)]))
def test_every_file_reaches_every_box_and_leaves_its_origin_once(
    given_run: tuple[int, list[int], int], origin: tuple[str, ...]
) -> None:
    boxes, sizes, seed = given_run
    run = Run(spread(boxes, files(*sizes), origin=origin), random.Random(seed))
    run.go()
    assert len(run.done) == boxes and not run.stuck
    assert run.first == Counter({file.sha256: 1 for file in files(*sizes) if counts(file, origin)})


@settings(max_examples=300, deadline=None)
@given(RUNS, st.sampled_from([0.1, 0.5, 1.0]), st.sets(st.integers(0, 7)))
def test_whatever_fails_between_boxes_the_others_get_everything(
    given_run: tuple[int, list[int], int], bad: float, dying: set[int]
) -> None:
    boxes, sizes, seed = given_run
    run = Run(spread(boxes, files(*sizes)), random.Random(seed), bad, {f"b{number}" for number in dying})
    run.go()
    assert not run.stuck
    assert {f"b{number}" for number in range(boxes)} - run.dying <= run.done


@settings(max_examples=150, deadline=None)
@given(RUNS, st.sets(st.integers(0, 7)))
def test_one_box_with_a_way_outside_is_enough(given_run: tuple[int, list[int], int], closed: set[int]) -> None:
    boxes, sizes, seed = given_run
    run = Run(spread(boxes, files(*sizes), origin=(OUTSIDE,)), random.Random(seed))
    run.no_way_out = {f"b{number}" for number in closed}
    run.go()
    everyone = {f"b{number}" for number in range(boxes)}
    assert run.done == (everyone if everyone - run.no_way_out else set())
    assert run.stuck == everyone - run.done


@settings(max_examples=100, deadline=None)
@given(RUNS, st.integers(0, 10**6))
def test_what_boxes_have_already_is_not_sent_again(given_run: tuple[int, list[int], int], other: int) -> None:
    boxes, sizes, seed = given_run
    chance = random.Random(other)
    have = {f"b{number}": [file.sha256 for file in files(*sizes) if chance.random() < 0.4] for number in range(boxes)}
    run = Run(spread(boxes, files(*sizes), have), random.Random(seed))
    run.go()
    missing = {file.sha256 for file in files(*sizes) if counts(file)} - {
        sha256 for there in have.values() for sha256 in there
    }
    assert len(run.done) == boxes and run.first == Counter(dict.fromkeys(missing, 1))


# How it is told
