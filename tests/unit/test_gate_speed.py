"""Tokens per second: held against the box's own history; published figures only warn."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit import gate_speed
from hostkit.errors import Failure
from hostkit.gate_http import Client, Reply


class Counting(Client):
    """An engine whose answers take as long as the test says; `others`: tokens it makes for somebody else meanwhile."""

    def __init__(self, *speeds: float, others: int = 0) -> None:
        super().__init__("127.0.0.1", 1)
        self.speeds, self.others, self.made = list(speeds), others, 0
        self.asked: list[dict[str, Any]] = []

    def ask_chat(self, what: str, content: str, most: int, **more: Any) -> Reply:
        self.asked.append({"most": most, **more})
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        self.made += most + 20 + self.others
        return Reply("1 2 3", "", [], "length", 20, most, most / speed)

    def counters(self) -> dict[str, float]:
        return {gate_speed.OWN[0]: float(self.made), gate_speed.OWN[1]: 0.0}


def measure(
    engine: Counting, history: list[float | None], floor: float = 0.5, published: float | None = None
) -> tuple[float | None, list[str]]:
    wanted = {"floor": floor, "published": published, "tokens": 100}
    return gate_speed.measure(engine, engine.ask_chat, wanted, [{"tokens_per_second": speed} for speed in history])


def test_the_best_of_two_is_taken_and_whole_answers_are_asked() -> None:
    engine = Counting(20, 80)
    assert measure(engine, []) == (80.0, [])
    assert engine.asked == [{"most": 100, "ignore_eos": True}] * 2


def test_one_that_is_slower_than_half_the_median_is_refused() -> None:
    with pytest.raises(Failure, match=r"decodes 40 tokens/s; the median of its last 3 activations is 90\.0") as caught:
        measure(Counting(40), [80, 90, None, 100])
    assert "the floor 45.0" in caught.value.cause and "speed_floor" in caught.value.remedy


def test_a_slow_beginning_gets_more_tries() -> None:
    engine = Counting(1, 2, 60)
    assert measure(engine, [80]) == (60.0, [])
    assert len(engine.asked) == 3


def test_other_requests_make_it_a_warning_and_no_figure() -> None:
    speed, (warning,) = measure(Counting(10, others=500), [80])
    assert speed is None and "other requests ran meanwhile" in warning


def test_without_a_floor_any_speed_passes() -> None:
    assert measure(Counting(1), [80], floor=0) == (1.0, [])


@pytest.mark.parametrize(("speed", "warns"), [(60, True), (80, False)])
def test_a_published_figure_only_warns(speed: float, warns: bool) -> None:
    found, warnings = measure(Counting(speed), [], published=84.5)
    assert found == speed and bool(warnings) is warns
    assert all("84.5 are published" in line for line in warnings)


def test_a_published_figure_is_nothing_to_a_box_with_a_history() -> None:
    assert measure(Counting(60), [60], published=84.5) == (60.0, [])


def test_a_slower_speed_that_was_taken_is_the_new_level() -> None:
    """Who deployed once without a floor, since a change costs speed, can deploy again."""
    assert gate_speed.level([{"tokens_per_second": speed} for speed in (84, 90, 30, 31)], 0.5) == [30, 31]
    assert measure(Counting(29), [84, 90, 30]) == (29.0, [])


@pytest.mark.parametrize("entry", [{}, {"tokens_per_second": None}, {"tokens_per_second": 0}])
def test_activations_without_a_figure_are_no_history(entry: dict[str, Any]) -> None:
    engine = Counting(1)
    assert gate_speed.measure(engine, engine.ask_chat, {"floor": 1.0, "published": None}, [entry]) == (1.0, [])
