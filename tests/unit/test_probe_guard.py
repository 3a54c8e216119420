"""A source that raises, crashes or hangs costs what it had not told yet and a line in `errors`, nothing else."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hostkit.guard import Source, Tell, collect


def test_answers_of_all_sources_and_no_child_left() -> None:
    long = "x" * 300_000  # more than a pipe holds
    answers, errors = collect([Source("a", lambda _: {"value": 1}, 5), Source("b", lambda _: {"value": long}, 5)])
    assert answers == {"a": {"value": 1}, "b": {"value": long}}
    assert errors == []


def test_a_failing_source_is_named_with_its_message() -> None:
    def fail(_: Tell) -> dict[str, int]:
        raise OSError("no such thing")

    answers, errors = collect([Source("broken", fail, 5), Source("fine", lambda _: {"value": 1}, 5)])
    assert answers == {"fine": {"value": 1}}
    assert errors == [{"source": "broken", "message": "OSError: no such thing"}]


def test_a_crash_of_a_library_stays_in_its_child() -> None:
    def crash(_: Tell) -> dict[str, int]:
        faulthandler.disable()  # it is meant to happen
        os.kill(os.getpid(), signal.SIGSEGV)
        return {}

    answers, errors = collect([Source("crash", crash, 5), Source("fine", lambda _: {"value": 1}, 5)])
    assert answers == {"fine": {"value": 1}}
    assert errors == [{"source": "crash", "message": "its process was ended by SIGSEGV before it had answered"}]


def test_a_hanging_source_is_given_up_and_later_ones_are_read() -> None:
    def hang(_: Tell) -> dict[str, int]:
        time.sleep(60)
        return {}

    started = time.monotonic()
    answers, errors = collect([Source("hang", hang, 0.2), Source("fine", lambda _: {"value": "x" * 300_000}, 5)])
    assert time.monotonic() - started < 2
    assert set(answers) == {"fine"}
    assert errors == [{"source": "hang", "message": "no answer within 0.2 s"}]


def test_a_source_cannot_write_into_the_answer(capfd) -> None:  # type: ignore[no-untyped-def]
    def talk(_: Tell) -> dict[str, int]:
        os.write(1, b"noise of a library")
        return {}

    collect([Source("talk", talk, 5)])
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("hang", "no answer within 0.3 s (in the third call)"),
        ("crash", "its process was ended by SIGKILL before it had answered (in the third call)"),
        ("raise", "OSError: no such thing"),
    ],
)
def test_what_a_source_told_before_is_kept(end: str, message: str) -> None:
    def read(tell: Tell) -> dict[str, str]:
        tell.doing("the first call, of a name that is longer than the third's")
        tell.known({"value": "first"})
        tell.known({"value": "x" * 300_000})
        tell.doing("the third call")
        if end == "hang":
            time.sleep(60)
        if end == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("no such thing")

    answers, errors = collect([Source("part", read, 0.3), Source("fine", lambda _: {"value": 1}, 5)])
    assert answers == {"part": {"value": "x" * 300_000}, "fine": {"value": 1}}
    assert errors == [{"source": "part", "message": message}]


def test_the_last_word_replaces_what_was_told_before() -> None:
    def read(tell: Tell) -> dict[str, str]:
        tell.known({"value": "first", "other": "gone"})
        return {"value": "last"}

    assert collect([Source("one", read, 5)]) == ({"one": {"value": "last"}}, [])


def test_a_box_with_no_process_left_for_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, left = os.fork, [1]

    def scarce() -> int:
        if not left:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        left.pop()
        return fork()

    monkeypatch.setattr(os, "fork", scarce)
    answers, errors = collect([Source("first", lambda _: {"value": 1}, 5)], [Source("second", lambda _: {}, 5)])
    assert answers == {"first": {"value": 1}}
    message = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
    assert errors == [{"source": "second", "message": message}]


def test_programs_of_a_hanging_source_end_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def read(_: Tell) -> dict[str, str]:
        program = subprocess.Popen(["sleep", "60"])
        note.with_suffix(".new").write_text(str(program.pid))
        note.with_suffix(".new").rename(note)
        program.wait()
        return {}

    _, errors = collect([Source("program", read, 2)])
    assert [error["source"] for error in errors] == ["program"]
    deadline = time.monotonic() + 10
    while runs(int(note.read_text())):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The children that are started from now on."""
    found: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        found.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    return found


def fail(_: Tell) -> dict[str, int]:
    raise OSError("no such thing")


def test_sources_together_are_read_in_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started = children(monkeypatch)
    fine = [Source(name, lambda _: {"value": os.getpid()}, 5) for name in ("a", "b", "c")]
    answers, errors = collect([fine[0]], [fine[1], Source("broken", fail, 5), fine[2]])
    assert len(started) == 2
    assert set(answers) == {"a", "b", "c"} and answers["b"] == answers["c"] != answers["a"]
    assert errors == [{"source": "broken", "message": "OSError: no such thing"}]


def test_each_of_those_together_has_its_own_time() -> None:
    """The last one answers after the first one's time is over."""

    def slow(_: Tell) -> dict[str, int]:
        time.sleep(0.7)
        return {"value": 1}

    names = ("a", "b", "c", "d")
    assert collect([Source(name, slow, 2.5) for name in names]) == ({name: {"value": 1} for name in names}, [])


def test_what_one_was_doing_is_not_said_of_the_next() -> None:
    def busy(tell: Tell) -> dict[str, int]:
        tell.doing("all its work")
        return {"value": 1}

    def hang(_: Tell) -> dict[str, int]:
        time.sleep(60)
        return {}

    _, errors = collect([Source("busy", busy, 5), Source("hang", hang, 0.2)])
    assert errors == [{"source": "hang", "message": "no answer within 0.2 s"}]


@pytest.mark.parametrize("how", ["hangs", "crashes"])
def test_where_one_of_those_together_does_not_end_those_after_it_go_on_in_another_child(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def end(_: Tell) -> dict[str, int]:
        if how == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        return {}

    started = children(monkeypatch)
    fine = [Source(name, lambda _: {"value": 1}, 0.3) for name in ("a", "b", "c")]
    answers, errors = collect([fine[0]], [fine[1], Source("bad", end, 0.3), fine[2]])
    assert answers == {name: {"value": 1} for name in ("a", "b", "c")}
    said = "no answer within 0.3 s" if how == "hangs" else "its process was ended by SIGKILL before it had answered"
    assert errors == [{"source": "bad", "message": said}]
    assert len(started) == 2 + 1
