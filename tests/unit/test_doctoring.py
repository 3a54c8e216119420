"""The lines of a preflight: what is in order, what is not and what to do, and the exit code that they ask for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gpufleet import doctoring, doctoring_view
from gpufleet.changes import changes
from gpufleet.doctoring import Line, Seen, examined
from gpufleet.pending import Pending, pending
from tests.unit.fleets import cpu_facts, gpu_facts
from tests.unit.test_rules_models_home import box as models_elsewhere
from tests.unit.test_status import fleet_of

NOW = 1764438000.0  # 2025-11-29T17:40:00Z
APT = {"locks": [], "broken": [], "interrupted": False, "addresses": [], "proxies": {}, "said": None}
FINE = {"status": 200, "kind": None, "said": None}


def moment(seconds: float) -> dict[str, Any]:
    return {"clock": {"synchronized": True, "now": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))}}


def seen(facts: dict[str, Any] | None = None, **checks: Any) -> Seen:
    found = Seen("box-1", facts={**cpu_facts(), **moment(NOW), **(facts or {})}, asked=(NOW, NOW + 1))
    found.passed("ssh", "logged in as anna")
    found.checks = {"apt": APT, "addresses": {}, **checks}
    return found


def wanted(tmp_path: Path, found: Seen) -> Pending:
    assert found.facts
    return pending(fleet_of(tmp_path), "box-1", found.facts)


def bad(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line.check, line.level) for line in lines if line.level != "ok"]


def test_a_box_in_order_has_a_line_for_each_check(tmp_path: Path) -> None:
    found = seen(addresses={"http://mirror.example/x": FINE})
    box = examined(found, wanted(tmp_path, found), [], {})
    assert bad(box.lines) == [] and (box.level, box.code) == ("ok", 0)
    assert [line.check for line in box.lines] == ["ssh", "clock", "apt", "network", "disk", "ports"]
    (text,) = [line for line, _ in doctoring_view.lines([box])]
    assert text.startswith(
        "box-1: ok: ssh logged in as anna; clock as the controller's; apt free; network mirror.example"
    )
    assert doctoring_view.summary([box]) == "1 box: 1 ok. Nothing was changed."


def test_a_look_that_ended_says_where_and_nothing_more_is_asked() -> None:
    found = Seen("box-1")
    found.passed("host key", "known")
    found.ended("ssh", "Authentication failed", "check ssh_user")
    box = examined(found, None, [], {})
    assert [line.check for line in box.lines] == ["host key", "ssh"] and box.code == 1
    shown = [line for line, _ in doctoring_view.lines([box])]
    assert shown[1] == "box-1: error: ssh: Authentication failed. Remedy: check ssh_user."


@pytest.mark.parametrize(
    ("apart", "level", "said"),
    [
        (0, "ok", "as the controller's"),
        (-29, "ok", "as the controller's"),
        (-41, "warning", "40 seconds behind"),
        (301, "warning", "5 minutes ahead of"),
        (-7300, "error", "2 hours behind"),
        (400 * 86400, "error", "400 days ahead of"),
    ],
)
def test_clocks(apart: float, level: str, said: str) -> None:
    facts = moment(NOW + apart)
    (line,) = doctoring.clock(facts, (NOW, NOW + (0 if apart < 0 else 1)))
    assert line.level == level and said in line.cause


def test_a_clock_that_is_not_told_is_no_line() -> None:
    assert list(doctoring.clock({"clock": {}}, (NOW, NOW))) == []


@pytest.mark.parametrize(
    ("found", "needed", "level", "said"),
    [
        ({"locks": [{"path": "/l", "pid": 7, "command": "apt"}]}, True, "warning", "apt (pid 7) holds /l"),
        ({"locks": [{"path": "/l", "pid": None, "command": None}]}, True, "warning", "a program (pid unknown)"),
        ({"broken": list("abcdef")}, True, "error", "did not get to the end of a, b, c, d and 2 more"),
        ({"broken": ["a"]}, False, "warning", "did not get to the end of a"),
        ({"interrupted": True}, True, "warning", "was interrupted"),
        ({"said": "E: Malformed entry\n 1"}, True, "error", "E: Malformed entry 1"),
        ({"said": "E: Malformed"}, False, "warning", "it cannot read its sources"),
    ],
)
def test_apt(found: dict[str, Any], needed: bool, level: str, said: str) -> None:
    (line,) = doctoring.apt({**APT, **found}, {}, needed)
    assert line.level == level and said in line.cause and line.remedy


def test_holds_are_told_and_are_no_trouble() -> None:
    (line,) = doctoring.apt(APT, {"holds": ["a", "b"]}, True)
    assert line == Line("apt", "ok", "free, 2 packages on hold")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 200}, ""),
        ({"status": 403}, ""),  # of a HEAD, by many an object store
        ({"status": 501}, ""),  # by a server that knows no HEAD
        ({"status": 404}, "it answers 404"),
        ({"status": 502}, "it answers 502"),
        ({"status": None, "kind": "name", "said": "Name or service not known"}, "its name does not resolve (Name"),
        ({"status": None, "kind": "time", "said": "timed out"}, "no answer (timed out)"),
        ({"status": None, "kind": "connection", "said": "Connection refused"}, "no connection (Connection refused)"),
    ],
)
def test_an_address_that_gives_nothing(answer: dict[str, Any], said: str) -> None:
    found = doctoring.unanswered(answer)
    assert found.startswith(said) and bool(found) == bool(said)


def test_addresses_of_one_host_are_one_line_and_apts_own_count_where_apt_is_needed() -> None:
    gone = {"status": None, "kind": "name", "said": "unknown"}
    answers = {
        "http://deb.example/a": gone,
        "http://deb.example/b": gone,
        "https://cuda.example:8443/key": gone,
        "http://fine.example/": FINE,
    }
    needed = {"https://cuda.example:8443/key": "the CUDA toolkit"}
    lines = list(doctoring.network(answers, needed, apt_needed=False))
    assert [(line.level, line.cause) for line in lines] == [
        ("warning", "deb.example: its name does not resolve (unknown) (for its apt sources)"),
        ("error", "cuda.example:8443: its name does not resolve (unknown) (for the CUDA toolkit)"),
    ]
    assert [line.level for line in doctoring.network(answers, needed, apt_needed=True)] == ["error", "error"]


def test_a_rule_that_refuses_is_3_and_names_its_code(tmp_path: Path) -> None:
    found = seen({"ports": {"8000": {"pid": 7, "command": "other", "unit": None}}})
    box = examined(found, wanted(tmp_path, found), [], {})
    (line,) = [line for line in box.lines if line.level == "error"]
    assert (line.check, line.code, box.code) == ("ports", "GF604", 3)
    assert "[GF604 port-taken]" in line.cause and line.remedy
    assert "ports" not in [line.check for line in box.lines if line.level == "ok"]


def test_a_lock_of_another_deploy_is_a_warning(tmp_path: Path) -> None:
    lock = {"id": "x", "who": "anna", "host": "laptop", "pid": 7, "since": "2026-11-29T17:00:00Z", "until": None}
    found = seen({"lock": lock})
    box = examined(found, wanted(tmp_path, found), [], {})
    assert bad(box.lines) == [("lock", "warning")] and box.code == 0
    assert "anna@laptop deploys right now" in box.lines[-1].cause


def test_the_first_of_2_1_3_counts() -> None:
    def box(code: int) -> doctoring.Box:
        return doctoring.Box("x", [], code)

    assert doctoring.exit_code([box(0), box(3)]) == 3
    assert doctoring.exit_code([box(3), box(1)]) == 1
    assert doctoring.exit_code([box(3), box(1), box(2)]) == 2
    assert doctoring.exit_code([]) == 0


def test_settings_that_do_not_fit_together_are_2() -> None:
    box = examined(seen(), None, ["box-1: serve: two instances are called x"], {})
    assert box.code == 2 and ("settings", "error") in bad(box.lines)


def test_cards_and_secure_boot_are_told(tmp_path: Path) -> None:
    found = seen(gpu_facts() | {"secure_boot": False} | moment(NOW))
    box = examined(found, wanted(tmp_path, found), [], {})
    fine = {line.check: line.cause for line in box.lines if line.level == "ok"}
    assert fine["secure boot"] == "off"


def test_the_json_has_every_line() -> None:
    box = examined(seen(), None, [], {})
    page = doctoring.document("2026-11-29T17:40:00Z", [box])
    assert page["schema"] == 1 and page["boxes"][0]["name"] == "box-1" and page["boxes"][0]["level"] == "ok"
    assert page["boxes"][0]["checks"][0] == {
        "check": "ssh",
        "level": "ok",
        "cause": "logged in as anna",
        "remedy": "",
        "code": None,
    }


def test_the_room_of_models_on_another_disk_is_told_of_that_disk() -> None:
    found = models_elsewhere()
    lines = doctoring.found_by_rules(found.facts, Pending(found, [], changes(found)))
    (disk,) = [line.cause for line in lines if line.check == "disk"]
    assert "/opt/gpufleet 5 GiB free" in disk and "/mnt/big/models 879 GiB free, 0 to come" in disk
