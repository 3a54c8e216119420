"""The order of a rollout: every box once, canaries first, never too many of one model down, for whatever fleet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import waves
from gpufleet.changes import changes
from gpufleet.errors import ConfigError
from gpufleet.settings import Rollout
from gpufleet.waves import Candidate, NoCanary, Order, order, share
from tests.unit.fleets import gpu_facts, plan
from tests.unit.test_changes import deployed

MODELS = st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2)
SHARES = st.one_of(st.integers(1, 30), st.integers(1, 100).map(lambda number: f"{number}%"))
BOXES = st.lists(st.tuples(st.sampled_from(["sm70", "sm75", "cpu"]), MODELS), max_size=30).map(
    lambda given: [Candidate(f"box-{number}", *each) for number, each in enumerate(given)]
)
ROLLOUTS = st.builds(lambda canary, batch, most: Rollout(canary=canary, batch=batch, max_unavailable=most),
                     st.booleans(), SHARES, SHARES)  # fmt: skip


def counted(boxes: list[Candidate], more: int = 0) -> dict[str, int]:
    return {model: sum(model in box.down for box in boxes) + more for model in "abc"}


@given(BOXES, ROLLOUTS, st.integers(0, 10))
def test_every_box_has_one_turn_and_no_wave_has_too_many_down(
    boxes: list[Candidate], rollout: Rollout, more: int
) -> None:
    serving = counted(boxes, more)
    found = order(boxes, serving, rollout)
    names = [name for wave in found.waves for name in wave.boxes]
    assert sorted(names) == sorted(box.name for box in boxes)
    assert all(wave.boxes for wave in found.waves)
    assert [(wave.number, wave.of) for wave in found.waves] == [
        (number, len(found.waves)) for number in range(1, len(found.waves) + 1)
    ]
    by_name = {box.name: box for box in boxes}
    for wave in found.waves:
        for model, count in serving.items():
            down = sum(model in by_name[name].down for name in wave.boxes)
            assert down <= share(rollout.max_unavailable, count)


@given(BOXES, ROLLOUTS)
def test_canaries_come_first_and_are_the_first_of_their_kinds(boxes: list[Candidate], rollout: Rollout) -> None:
    found = order(boxes, counted(boxes), rollout)
    canaries = [name for wave in found.waves if wave.canary for name in wave.boxes]
    kinds: dict[str, str] = {}
    for box in boxes:
        kinds.setdefault(box.kind, box.name)
    assert canaries == (list(kinds.values()) if rollout.canary else [])
    assert [wave.canary for wave in found.waves] == sorted((wave.canary for wave in found.waves), reverse=True)


@given(BOXES, ROLLOUTS)
def test_after_the_canaries_those_that_do_not_serve_then_batches_in_order(
    boxes: list[Candidate], rollout: Rollout
) -> None:
    found = order(boxes, counted(boxes), rollout)
    rest = [wave for wave in found.waves if not wave.canary]
    by_name = {box.name: box for box in boxes}
    idle = [wave for wave in rest if not any(by_name[name].down for name in wave.boxes)]
    assert idle == rest[: len(idle)] and len(idle) <= 1
    place = [box.name for box in boxes].index
    names = [name for wave in rest[len(idle) :] for name in wave.boxes]
    assert names == sorted(names, key=place) and all(by_name[name].down for name in names)
    size = share(rollout.batch, sum(bool(box.down) for box in boxes))
    assert all(len(wave.boxes) <= size for wave in rest[len(idle) :])
    # no batch ends without need
    for wave, after in zip(rest[len(idle) :], rest[len(idle) + 1 :], strict=False):
        assert len(wave.boxes) == size or waves.over([*wave.boxes, after.boxes[0]], found)


@given(BOXES, ROLLOUTS, st.data())
def test_whatever_fails_before_its_turn_every_kind_has_a_canary_or_the_run_stops(
    boxes: list[Candidate], rollout: Rollout, data: st.DataObject
) -> None:
    found = order(boxes, counted(boxes), rollout)
    gone = data.draw(st.sets(st.sampled_from([box.name for box in boxes]))) if boxes else set()
    done: list[str] = []
    tried: set[str] = set()
    for wave in found.waves:
        try:
            now = found.now(wave, gone, done)
        except NoCanary:
            return
        assert not gone & set(now) and not set(done) & set(now) and not waves.over(now, found)
        kinds = {found.candidates[name].kind for name in now}
        assert wave.canary or not rollout.canary or kinds <= tried
        tried |= kinds
        done += now
    assert sorted(done) == sorted({box.name for box in boxes} - gone)


def test_twenty_boxes() -> None:
    boxes = [Candidate(f"box-{number}", "cpu", frozenset({"a"})) for number in range(1, 21)]
    found = order(boxes, {"a": 20}, Rollout())
    assert [len(wave.boxes) for wave in found.waves] == [1, 5, 5, 5, 4]
    assert found.waves[0].title == "Wave 1 of 5: box-1 (canary of cpu)"
    assert found.waves[1].title == "Wave 2 of 5: box-2, box-3, box-4, box-5, box-6 (25 %)"
    tight = order(boxes, {"a": 20}, Rollout(batch=10, max_unavailable=2))
    assert tight.waves[1].title == "Wave 2 of 11: box-2, box-3 (at most 2 of a at once)"
    assert tight.waves[-1].title == "Wave 11 of 11: box-20 (10 at a time)"
    wide = order(boxes, {"a": 20}, Rollout(batch="100%", max_unavailable=20, canary=False))
    assert wide.waves[0].title == "Wave 1 of 1: box-1, box-2, box-3, box-4 and 16 more (100 %)"


def test_canaries_of_several_kinds_go_together_where_they_may() -> None:
    boxes = [Candidate("a-1", "sm75", frozenset({"a"})), Candidate("b-1", "sm70", frozenset({"b"})),
             Candidate("c-1", "sm86", frozenset({"a"}))]  # fmt: skip
    found = order(boxes, {"a": 2, "b": 1}, Rollout())
    assert [(wave.boxes, wave.reason) for wave in found.waves] == [
        (("a-1", "b-1"), "canaries of 2 kinds"),
        (("c-1",), "canary of sm86"),
    ]


def test_nothing_to_switch_is_no_wave() -> None:
    assert order([], {}, Rollout()) == Order()


@pytest.mark.parametrize(("given", "total", "count"), [("25%", 20, 5), ("25%", 7, 1), ("25%", 1, 1), (3, 1, 3)])
def test_a_share_is_rounded_down_and_never_nothing(given: Any, total: int, count: int) -> None:
    assert share(given, total) == count


def test_what_goes_down_is_what_serves_and_is_switched() -> None:
    facts = deployed()
    box = plan(facts, {"serve_args": {"served-model-name": ["small", "tiny"]}})
    assert waves.down(box, changes(box)) == {"small"} and waves.serving([box, box]) == {"small": 2}
    assert waves.candidates({"box": (box, changes(box))})[0].kind == "sm75 nvlink nv2, engine-cpu"
    assert waves.candidates({"box": (plan(facts), changes(plan(facts)))}) == []
    fresh = plan(gpu_facts())
    assert waves.down(fresh, changes(fresh)) == set() and waves.serving([fresh]) == {}
    gone = plan(facts, {"serve": []})
    assert waves.down(gone, changes(gone)) == {"tiny"}


def test_settings_of_the_run_that_differ_name_both_boxes() -> None:
    one, other = plan(gpu_facts()), plan(gpu_facts(), {"rollout": {"batch": 3, "on_refusal": "leave out"}})
    assert waves.agreed([one, one]).batch == "25%"
    with pytest.raises(ConfigError, match=r"rollout\.batch is '25%' for box-1 and 3 for box-1 \(inventory/x\.py\)"):
        waves.agreed([one, other])
