"""How far a build is, told from what ninja prints."""

from __future__ import annotations

import pytest

from hostkit.ninja import EVERY_SECONDS, Progress, span


def test_a_line_every_quarter_of_a_minute() -> None:
    progress = Progress(100.0)
    assert progress.due(100.0 + EVERY_SECONDS - 0.1) is None
    assert progress.due(100.0 + EVERY_SECONDS) == "being prepared for 15 s"
    progress.line("[1/39] Building CUDA object a.o", 116.0)
    assert progress.due(120.0) is None
    progress.line("[11/39] Building CUDA object b.o", 131.0)
    # ten in 15 s, and 28 are left
    assert progress.due(131.0) == "step 11 of 39 (28 %), 40.0 a minute, some 42 s to go"


def test_a_step_that_takes_long_still_tells() -> None:
    progress = Progress(0.0)
    progress.line("[1/3] x", 1.0)
    progress.line("[2/3] x", 61.0)
    assert progress.due(361.0) == "step 2 of 3 (66 %), 0.2 a minute, some 6 min to go"
    assert progress.due(376.0) == "step 2 of 3 (66 %), 0.2 a minute, some 6 min to go"


def test_a_second_run_of_ninja_counts_from_its_own_beginning() -> None:
    progress = Progress(0.0)
    for number in range(1, 10):
        progress.line(f"[{number}/9] Completed 'cutlass-populate'", float(number))
    progress.line("[1/100] Building CUDA object", 1000.0)
    assert progress.due(1000.0) == "step 1 of 100 (1 %)"  # of the rate nothing is known yet
    progress.line("[3/100] Building CUDA object", 1060.0)
    assert progress.due(1060.0) == "step 3 of 100 (3 %), 2.0 a minute, some 48 min to go"


def test_a_total_that_grows_is_the_same_run() -> None:
    progress = Progress(0.0)
    progress.line("[1/10] x", 0.0)
    progress.line("[2/20] x", 60.0)
    assert progress.due(60.0) == "step 2 of 20 (10 %), 1.0 a minute, some 18 min to go"


@pytest.mark.parametrize("line", ["", "-- Configuring done", "note: [3/4] in the middle", "[x/4] y", "[1/2"])
def test_other_lines_say_nothing(line: str) -> None:
    progress = Progress(0.0)
    progress.line(line, 1.0)
    assert progress.due(20.0) == "being prepared for 20 s"


def test_the_last_step_has_nothing_to_go() -> None:
    progress = Progress(0.0)
    progress.line("[1/2] x", 0.0)
    progress.line("[2/2] x", 10.0)
    assert progress.due(15.0) == "step 2 of 2 (100 %)"


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (11100.0, "3 h 5 min")])
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said
