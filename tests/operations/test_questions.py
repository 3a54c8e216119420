"""Calls of the kit share processes on the box, and none is given the answer, or the end, of another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from gpufleet.errors import BoxError
from hostkit.errors import Failure
from operations import become, questions, remote
from tests.operations import boxes as served
from tests.operations.boxes import LOOPBACK, PASSWORD, Boxes, boxes


@pytest.fixture
def found() -> Iterator[Boxes]:
    forget()
    with boxes({"one": {}, "two": {}}) as found:
        found.kit = kit
        yield found
    forget()


def forget() -> None:
    questions._waiting.clear()
    become.by_box.clear()


def kit(box: str, verb: str, spec: dict[str, Any]) -> dict[str, Any]:
    if verb == "fails":
        raise Failure("it is full", "make room")
    if "meet" in spec:
        spec["meet"] = MEETING.wait(10)
    return {"said": [box, verb, spec]}


MEETING = threading.Barrier(2)


def connected(found: Boxes, name: str) -> Any:
    client = paramiko.SSHClient()
    client.get_host_keys().add(f"[{LOOPBACK}]:{found.ports[name]}", found.key.get_name(), found.key)
    client.connect(LOOPBACK, found.ports[name], "root", PASSWORD, allow_agent=False, look_for_keys=False)
    return SimpleNamespace(name=name, connector=SimpleNamespace(client=client), log=lambda _: None)


def test_one_process_for_calls_after_one_another(found: Boxes) -> None:
    one, two = connected(found, "one"), connected(found, "two")
    for number in range(3):
        assert remote.call(one, "stock", {"n": number})["said"] == ["one", "stock", {"n": number}]
        assert remote.call(two, "lock", {})["said"] == ["two", "lock", {}]
        with pytest.raises(BoxError, match=r"one: it is full\. Make room"):
            remote.call(one, "fails", {})
    assert sorted(found.processes) == ["one", "two"]


def test_calls_at_once_have_a_process_each(found: Boxes) -> None:
    host, answers = connected(found, "one"), list[Any]()
    for _ in range(2):
        threads = [
            threading.Thread(
                target=lambda n: answers.append((n, remote.call(host, "x", {"n": n, "meet": 0})["said"][2]["n"])),
                args=(n,),
            )
            for n in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(answers) == [(0, 0), (0, 0), (1, 1), (1, 1)]
    assert found.processes == ["one", "one"], "the second two found those of the first"


def test_a_process_whose_python_was_upgraded_has_another_asked(found: Boxes) -> None:
    host = connected(found, "one")
    remote.call(host, "stock", {})
    found.upgraded.add("one")
    for number in range(2):
        assert remote.call(host, "stock", {"n": number})["said"] == ["one", "stock", {"n": number}]
    assert found.processes == ["one", "one"]
    assert found.asked == [("one", "stock")] * 3, "and nothing is done twice"


def test_bytes_go_to_a_process_of_their_own(found: Boxes) -> None:
    host = connected(found, "one")
    remote.call(host, "stock", {})
    assert remote.call(host, "receive", {"files": []}, payload=[b""])["said"][1] == "receive"
    remote.call(host, "stock", {})
    assert found.processes == ["one", "one"]


def test_silence_ends_its_process_and_the_next_call_has_another(found: Boxes) -> None:
    host = connected(found, "one")
    found.hung.add("one")
    with pytest.raises(BoxError, match="one: no answer within 1 s"):
        remote.call(host, "stock", {}, seconds=1)
    found.hung.clear()
    assert remote.call(host, "stock", {})["said"][1] == "stock"
    assert found.processes == ["one", "one"]


def close_it(found: Boxes, host: Any, patch: pytest.MonkeyPatch) -> None:
    ((_, command),) = questions._waiting["one"]
    command._channel.shutdown_write()  # the box's end closes then
    assert command._channel.recv(1) == b""


def make_old(found: Boxes, host: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(questions, "IDLE_SECONDS", -1)


def connect_anew(found: Boxes, host: Any, patch: pytest.MonkeyPatch) -> None:
    host.connector.client = connected(found, "one").connector.client


@pytest.mark.parametrize("spoil", [close_it, make_old, connect_anew])
def test_a_process_that_is_gone_or_waited_long_is_not_asked(
    found: Boxes, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., None]
) -> None:
    host = connected(found, "one")
    remote.call(host, "stock", {})
    spoil(found, host, monkeypatch)
    assert remote.call(host, "stock", {})["said"][1] == "stock"
    assert found.processes == ["one", "one"]


def test_who_stops_listening_leaves_no_answer_for_the_next(found: Boxes) -> None:
    host = connected(found, "one")

    def complains(_: str) -> None:
        raise ValueError("no room on the screen")

    found.kit, found.answers = None, {"told": [{"event": "log", "message": "hello"}, {"event": "result", "n": 1}]}
    with pytest.raises(ValueError, match="no room"):
        remote.call(host, "told", {}, log=complains)
    found.answers["told"] = [{"event": "result", "n": 2}]
    assert remote.call(host, "told", {})["n"] == 2
    assert found.processes == ["one", "one"]


def test_a_bad_end_without_a_word_is_said_by_what_stood_on_standard_error(
    found: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "END", b'{"event": "end", "said": "Killed: no memory", "status": 137}\n')
    found.kit, found.answers = None, {"dies": []}
    with pytest.raises(BoxError, match="one: a command failed: Killed: no memory"):
        remote.call(connected(found, "one"), "dies", {})


@pytest.mark.parametrize("cut", [b'{"event": "end", "sa', b'{"event": "res', b""])
def test_an_answer_that_breaks_off_is_a_connection_that_did(
    found: Boxes, monkeypatch: pytest.MonkeyPatch, cut: bytes
) -> None:
    def half(server: Any, channel: paramiko.Channel, sudo: bool) -> None:
        channel.recv(1)
        channel.sendall(served.READY + cut)
        channel.close()

    monkeypatch.setattr(served._Server, "_answer_many", half)
    with pytest.raises(BoxError, match="one: the connection broke off while a command was running"):
        remote.call(connected(found, "one"), "stock", {})
    assert found.processes == ["one"], "it may have been done: nothing is asked a second time"


def test_sudo_takes_nothing_for_a_password_but_the_password(found: Boxes) -> None:
    host = connected(found, "one")
    become.by_box["one"] = PASSWORD
    for _ in range(2):
        assert remote.call(host, "stock", {})["said"][1] == "stock"
    assert found.processes == ["one"]


def test_sudo_that_takes_it_no_more_is_said(found: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "READY_SECONDS", 1)
    become.by_box["one"] = "an old one"
    with pytest.raises(BoxError, match="one: sudo does not accept the password"):
        remote.call(connected(found, "one"), "stock", {})
    assert found.asked == []


@pytest.mark.parametrize("payload", [None, [b""]])
def test_processes_that_wait_make_room(
    found: Boxes, monkeypatch: pytest.MonkeyPatch, payload: list[bytes] | None
) -> None:
    found.at_once = 1
    host = connected(found, "one")
    remote.call(host, "stock", {})
    if payload is None:
        monkeypatch.setattr(questions, "_found", lambda host: None)  # as where all that wait are asked
    assert remote.call(host, "receive", {}, payload=payload)["said"][1] == "receive"


def test_a_box_that_allows_no_session_says_so(found: Boxes) -> None:
    found.at_once = 0
    with pytest.raises(BoxError, match=r"one: the connection broke off .*Administratively prohibited"):
        remote.call(connected(found, "one"), "stock", {})
