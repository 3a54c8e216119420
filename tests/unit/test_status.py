"""The state of instances, as JSON and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet import status, status_view
from gpufleet.catalogue import Catalogue
from gpufleet.errors import BoxError
from gpufleet.fleet import Fleet
from gpufleet.pending import Pending, pending
from gpufleet.plan import Box
from gpufleet.render import release
from tests.unit.fleets import cpu_facts, model, plan, stack

NOW, BEFORE = "2026-11-29T17:40:00Z", "2026-11-29T12:30:00Z"
OK = {"ok": True, "status": 200, "seconds": 0.004, "said": ""}
NO = {"ok": False, "status": None, "seconds": 3.0, "said": "timed out"}
COUNTED = {"running": 2.0, "waiting": 1.0, "kv_cache": 0.123, "draft_tokens": 100.0, "accepted_tokens": 71.0}
RUNTIME = "engine-cpu-0123456789ab"
DIGEST = release(plan(cpu_facts()).instances[0]).digest


def service(active: str = "active", sub: str = "running", **more: Any) -> dict[str, Any]:
    return {"active": active, "sub": sub, "enabled": True, "pid": 7, "restarts": 0, "since": BEFORE, **more}


def instance(**more: Any) -> dict[str, Any]:
    found = {"current": DIGEST, "releases": [DIGEST], "drift": [], "gated": DIGEST, "stale": False, "port": 8000}
    return {**found, "service": service(), **more}


def facts_of(**more: Any) -> dict[str, Any]:
    runtime = plan(cpu_facts()).runtimes[0].name
    whole = {"complete": True}
    there = {"packages": {"g++": "12", "libnuma1": "2"}, "runtimes": {runtime: whole, RUNTIME: whole}}
    there["models"] = {"tiny/r1": {"complete": True}}
    return cpu_facts(**{**there, "instances": {"tiny": instance()}, "at": NOW, **more})


def fleet_of(tmp_path: Path) -> Fleet:
    boxes = {"box-1": Box("box-1", {"stack": "engine-cpu", "serve": ["tiny"]}, (), "inventory/x.py")}
    stacks, models = Catalogue("stack", {"engine-cpu": stack()}), Catalogue("model", {"tiny": model()})
    return Fleet(tmp_path, tmp_path / "inventory/home.py", boxes, {"box-1": {}}, {}, stacks, models)


def box(facts: dict[str, Any], wanted: Pending | None = None, **serving: Any) -> dict[str, Any]:
    answer = {"health": OK, "metrics": None, "port": 8000, "runtime": RUNTIME, "model": "tiny/r1"}
    return status.of_box("box-1", facts, {"tiny": {**answer, **serving}}, wanted)


def test_an_instance_that_serves(tmp_path: Path) -> None:
    facts = facts_of()
    history = [{"at": BEFORE, "tokens_per_second": 41.0, "outcome": "activated"}, {"tokens_per_second": None}]
    facts["instances"]["tiny"]["history"] = history
    found = box(facts, pending(fleet_of(tmp_path), "box-1", facts), metrics={**COUNTED, "tokens_per_second": 38.5})
    (item,) = found["instances"]
    assert (item["state"], item["release"], item["since"], item["port"]) == ("serving", DIGEST, BEFORE, 8000)
    assert (item["stack"], item["runtime"], item["model"]) == ("engine-cpu", "engine-cpu-0123456789ab", "tiny/r1")
    assert item["speed"] == {"now": 38.5, "gate": 41.0} and item["last"] == history[-1]
    assert found["changes"] == [] and found["drift"] == [] and not status.is_bad(found)
    assert status_view.rows(found) == [
        (
            "box-1",
            "tiny",
            "serving",
            "5 h",
            DIGEST,
            "38.5 tok/s, 2 running, 1 waiting, KV 12 %, 71 % of drafts accepted",
            "engine-cpu-0123456789ab",
            "tiny/r1",
        )
    ]
    assert list(status_view.notes(found, "home.py")) == []


def test_an_idle_instance_shows_the_speed_of_its_gate() -> None:
    facts = facts_of(instances={"tiny": instance(history=[{"tokens_per_second": 41.0}])})
    found = box(facts, metrics={"running": 0.0, "waiting": 0.0, "kv_cache": 0.0, "tokens_per_second": 0.0})
    assert status_view.rows(found)[0][5] == "idle, 41.0 tok/s at its gate"
    assert status_view.rows(box(facts_of()))[0][5] == ""


@pytest.mark.parametrize(
    ("more", "health", "state", "why", "bad"),
    [
        ({}, NO, "not answering", "timed out", True),
        ({}, None, "not answering", "its port is not known", True),
        ({"gated": None}, NO, "starting", "timed out", False),
        ({"stale": True}, NO, "starting", "timed out", False),
        ({"activation": {"step": "gating", "to": "b" * 16}}, NO, "activating", f"gating, to {'b' * 16}", False),
        (
            {"service": service("activating", "auto-restart", restarts=3)},
            NO,
            "restarting",
            "it was started 4 times",
            True,
        ),
        ({"service": service("activating", "start-pre")}, NO, "starting", "start-pre", False),
        ({"service": service("failed", "failed", restarts=5)}, NO, "failed", "after 5 restarts", True),
        ({"service": service("inactive", "dead")}, NO, "stopped", "its service is inactive", True),
        ({"service": service("deactivating", "stop-sigterm")}, NO, "stopped", "stop-sigterm", True),
    ],
)
def test_states_of_an_instance(
    more: dict[str, Any], health: dict[str, Any] | None, state: str, why: str, bad: bool
) -> None:
    found = box(facts_of(instances={"tiny": instance(**more)}), health=health)
    (item,) = found["instances"]
    assert (item["state"], item["why"]) == (state, why)
    assert status.is_bad(found) is bad
    told = "\n".join(line for line, _ in status_view.notes(found, "home.py"))
    assert (f"box-1/tiny: {state}: {why}. See `gpufleet logs home.py box-1/tiny`." in told) is bad


def test_what_is_retired_is_not_shown() -> None:
    gone = instance(current=None, service=service("inactive", "dead"))
    found = box(facts_of(instances={"tiny": gone}))
    assert found["instances"] == [] and not status.is_bad(found)
    assert status_view.rows(found)[0][:3] == ("box-1", "-", "serves nothing")


def test_all_that_is_odd_is_told(tmp_path: Path) -> None:
    lock = {"id": "x", "who": "anna", "host": "laptop", "pid": 7, "since": BEFORE, "until": "2026-11-29T18:00:00Z"}
    odd = instance(
        drift=["serve.yaml: modified"],
        held={"since": BEFORE, "by": "anna@laptop", "digest": DIGEST},
        activation={"to": "b" * 16, "from": DIGEST, "step": "starting", "began": 1764438000, "attempts": 2},
    )
    facts = facts_of(
        instances={"tiny": odd}, lock=lock, packages={}, errors=[{"source": "clock", "message": "no answer"}]
    )
    found = box(facts, pending(fleet_of(tmp_path), "box-1", facts))
    lines = [line for line, _ in status_view.notes(found, "home.py")]
    assert lines[0] == (f"box-1: locked by anna on laptop (pid 7) since {BEFORE}; it runs out at 2026-11-29T18:00:00Z")
    assert (
        f"box-1/tiny: an activation is under way from {DIGEST} to {'b' * 16}: starting, since 2025-11-29T17:40:00Z, "
        "try 2" in lines
    )
    assert f"box-1/tiny: held at {DIGEST} since {BEFORE} by anna@laptop: a deploy leaves it, until " in "\n".join(lines)
    assert "box-1/tiny: drift: serve.yaml: modified" in lines
    assert "box-1: drift: apt install g++ libnuma1" in lines
    assert "box-1: not read: clock: no answer" in lines
    assert any(line.startswith("box-1: a deploy would change ") for line in lines)
    assert status_view.rows(found)[0][2] == "activating, held"


def test_a_release_that_nobody_gated_is_told() -> None:
    found = box(facts_of(instances={"tiny": instance(gated="b" * 16, stale=True)}))
    assert [line for line, _ in status_view.notes(found, "x")] == [
        f"box-1/tiny: release {DIGEST} has not passed its gate"
    ]


def test_a_runtime_and_a_model_that_are_not_whole_are_drift() -> None:
    found = box(facts_of(runtimes={RUNTIME: {"complete": False}}, models={}))
    assert found["instances"][0]["drift"] == [f"runtime {RUNTIME}: not whole", "model tiny/r1: not whole"]


def test_a_bare_box_has_no_drift(tmp_path: Path) -> None:
    facts = facts_of(packages={}, instances={})
    found = box(facts, pending(fleet_of(tmp_path), "box-1", facts))
    assert found["drift"] == [] and "apt install g++ libnuma1" in found["changes"]


def test_a_lock_that_ran_out_is_none() -> None:
    assert status.lock_of({"at": NOW, "lock": {"who": "anna", "until": BEFORE}}) is None
    assert status.lock_of({"at": NOW}) is None
    assert (status.lock_of({"at": BEFORE, "lock": {"who": "anna", "until": NOW}}) or {})["who"] == "anna"


def test_a_box_that_cannot_be_looked_at() -> None:
    found = status.unreachable("box-2", BoxError("box-2", "it is off", "turn it on"))
    assert status.is_bad(found) and set(found) == set(box(facts_of()))
    assert status_view.rows(found)[0][:3] == ("box-2", "", "unreachable")
    assert list(status_view.notes(found, "x")) == [("box-2: it is off. Turn it on.", "bad")]
    page = status.document(NOW, [found])
    assert page["schema"] == 1 and page["boxes"][0]["error"] == {"cause": "it is off", "remedy": "turn it on"}


def test_a_box_that_cannot_be_planned_is_shown_all_the_same() -> None:
    found = status.of_box("box-1", facts_of(), {}, None, "serve: nonsense")
    assert found["changes"] is None
    assert "what a deploy would do cannot be told: serve: nonsense" in str(list(status_view.notes(found, "x")))


@pytest.mark.parametrize(
    ("since", "words"),
    [
        ("2026-11-29T17:39:20Z", "40 s"),
        ("2026-11-29T17:28:00Z", "12 min"),
        ("2026-11-29T12:40:00Z", "5 h"),
        ("2026-11-20T12:40:00Z", "9 d"),
        ("2026-11-29T17:41:00Z", "0 s"),
        (None, ""),
        ("nonsense", ""),
    ],
)
def test_how_long_it_is_so(since: str | None, words: str) -> None:
    assert status_view.ago(since, NOW) == words
