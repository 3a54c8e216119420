"""A source that raises, crashes or hangs costs its own facts and a line in `errors`, nothing else."""

from __future__ import annotations

import faulthandler
import os
import signal
import time

from hostkit.guard import Source, collect


def test_answers_of_all_sources_and_no_child_left() -> None:
    long = "x" * 300_000  # more than a pipe holds
    answers, errors = collect([Source("a", lambda: {"value": 1}, 5), Source("b", lambda: {"value": long}, 5)])
    assert answers == {"a": {"value": 1}, "b": {"value": long}}
    assert errors == []


def test_a_failing_source_is_named_with_its_message() -> None:
    def fail() -> dict[str, int]:
        raise OSError("no such thing")

    answers, errors = collect([Source("broken", fail, 5), Source("fine", lambda: {"value": 1}, 5)])
    assert answers == {"fine": {"value": 1}}
    assert errors == [{"source": "broken", "message": "OSError: no such thing"}]


def test_a_crash_of_a_library_stays_in_its_child() -> None:
    def crash() -> dict[str, int]:
        faulthandler.disable()  # it is meant to happen
        os.kill(os.getpid(), signal.SIGSEGV)
        return {}

    answers, errors = collect([Source("crash", crash, 5), Source("fine", lambda: {"value": 1}, 5)])
    assert answers == {"fine": {"value": 1}}
    assert errors == [{"source": "crash", "message": "its process ended before it had answered"}]


def test_a_hanging_source_is_given_up_and_later_ones_are_read() -> None:
    def hang() -> dict[str, int]:
        time.sleep(60)
        return {}

    started = time.monotonic()
    answers, errors = collect([Source("hang", hang, 0.2), Source("fine", lambda: {"value": "x" * 300_000}, 5)])
    assert time.monotonic() - started < 2
    assert set(answers) == {"fine"}
    assert errors == [{"source": "hang", "message": "no answer within 0.2 s"}]


def test_a_source_cannot_write_into_the_answer(capfd) -> None:  # type: ignore[no-untyped-def]
    def talk() -> dict[str, int]:
        os.write(1, b"noise of a library")
        return {}

    collect([Source("talk", talk, 5)])
    assert capfd.readouterr().out == ""
