"""How far a transfer is, and how long it still takes: a line now and then."""

from __future__ import annotations

import pytest

from gpufleet.pace import Pace, duration


def test_a_line_now_and_then() -> None:
    pace = Pace(1000 << 20, 100 << 20, now=0.0)
    assert pace.line(150 << 20, 1.0) is None
    assert pace.line(200 << 20, 5.0) == "200 of 1000 MiB, 21.0 MB/s, 40 s to go"
    assert pace.line(300 << 20, 6.0) is None
    assert pace.line(1000 << 20, 20.0) == "1000 of 1000 MiB, 47.2 MB/s"


def test_the_first_bytes_after_a_wait_promise_nothing() -> None:
    pace = Pace(1000 << 20, 0, now=0.0)
    assert pace.line(1 << 18, 60.0) == "0 of 1000 MiB, 0.0 MB/s"


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    pace = Pace(10_000 << 20, 0, now=0.0)
    for second in range(1, 101):
        pace.line(second * 10 << 20, float(second))
    assert pace.line(1000 << 20, 130.0) == "1000 of 10000 MiB, 0.0 MB/s"
    assert pace.line(1000 << 20, 200.0) == "1000 of 10000 MiB, 0.0 MB/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (40, "40 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (400, "7 min"),
        (5390, "1 h 30 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
