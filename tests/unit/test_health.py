"""How instances serve now: what `gpufleet status` shows of each, and what waves ask before the next boxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit import health, metrics, serving
from tests.unit.boxes import FakeBox
from tests.unit.engine import Engine, engine

__all__ = ["engine"]  # a fixture


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    return FakeBox(tmp_path, monkeypatch)


COUNTS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1000.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7e9
vllm:spec_decode_num_draft_tokens_total{engine="0"} 100.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 71.0
vllm:prompt_tokens_total{engine="0"} NaN
python_gc_objects_collected_total{generation="0"} 7.0
"""


def test_the_engines_counters_are_read() -> None:
    assert metrics.read(COUNTS) == {
        "running": 3.0,
        "waiting": 0.0,
        "kv_cache": 0.5,
        "generated_tokens": 1000.0,
        "draft_tokens": 100.0,
        "accepted_tokens": 71.0,
    }
    lm = "lmdeploy:gpu_cache_usage_perc 0.1\nlmdeploy:generation_tokens_total 5\nlmdeploy:x no\n"
    assert metrics.read(lm) == {"kv_cache": 0.1, "generated_tokens": 5.0}
    assert metrics.read("") == {} and metrics.read("vllm:\nvllm:generation_tokens_total") == {}


def test_the_speed_between_two_looks() -> None:
    before, after = {"generated_tokens": 100.0, "prompt_tokens": 5.0}, {"generated_tokens": 140.0, "prompt_tokens": 1.0}
    assert metrics.speed(before, after, 2.0) == {"tokens_per_second": 20.0}  # prompts were counted anew: a new process
    assert metrics.speed(before, after, 0.0) == {} and metrics.speed({}, after, 1.0) == {}


def serve(box: FakeBox, monkeypatch: pytest.MonkeyPatch, **known: Any) -> dict[str, Any]:
    """What `health` says of the instance `tiny`, which has this in state.json."""
    home = box.root / "instances/tiny"
    (home / "releases" / ("a" * 16)).mkdir(parents=True, exist_ok=True)
    (home / "releases" / ("a" * 16) / "manifest.json").write_text('{"runtime": "engine-1"}')
    if not (home / "current").is_symlink():
        (home / "current").symlink_to("releases/" + "a" * 16)
    (box.root / "state").mkdir(exist_ok=True)
    (box.root / "state/state.json").write_text(json.dumps({"instances": {"tiny": known}}))
    monkeypatch.setattr(health, "instance_names", lambda _: ["tiny", "gone"])
    answer: dict[str, Any] = health.run({"seconds": 0.01})["instances"]
    return answer


def test_an_instance_that_serves(box: FakeBox, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.grows = 10
    found = serve(box, monkeypatch, port=engine.port)
    assert set(found) == {"tiny"}  # the other has no current release
    tiny = found["tiny"]
    assert tiny["health"]["ok"] and tiny["health"]["status"] == 200 and tiny["health"]["said"] == ""
    assert tiny["metrics"]["generated_tokens"] == 20.0 and tiny["metrics"]["tokens_per_second"] > 0
    assert (tiny["runtime"], tiny["model"], tiny["port"]) == ("engine-1", None, engine.port)


def test_what_an_instance_runs_on_comes_from_its_gate(
    box: FakeBox, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.metrics = False
    gates = box.root / "instances/tiny/gates"
    gates.mkdir(parents=True)
    spec = {"runtime": "/opt/gpufleet/runtimes/engine-2", "model": "/opt/gpufleet/models/tiny/r1", "port": engine.port}
    (gates / ("a" * 16 + ".json")).write_text(json.dumps({**spec, "gate": {"host": "127.0.0.1"}}))
    tiny = serve(box, monkeypatch, port=1)["tiny"]
    assert (tiny["runtime"], tiny["model"], tiny["port"]) == ("engine-2", "tiny/r1", engine.port)
    assert tiny["health"]["ok"] and tiny["metrics"] is None


def test_an_instance_that_is_ill_and_one_that_does_not_answer(
    box: FakeBox, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.health = 503
    ill = serve(box, monkeypatch, port=engine.port)["tiny"]
    engine.close()
    assert not ill["health"]["ok"] and ill["health"]["said"] == "/health says 503"
    gone = serve(box, monkeypatch, port=engine.port)["tiny"]
    assert not gone["health"]["ok"] and gone["health"]["status"] is None and "refused" in gone["health"]["said"]
    assert serve(box, monkeypatch)["tiny"]["health"] is None  # nobody knows its port


def test_an_instance_that_hangs_costs_no_more_than_the_limit(
    box: FakeBox, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LIMIT_SECONDS", 0.05)
    engine.silent = True
    tiny = serve(box, monkeypatch, port=engine.port)["tiny"]
    assert not tiny["health"]["ok"] and "no answer within" in tiny["health"]["said"]


def test_waves_are_told_whether_each_serves(box: FakeBox, engine: Engine) -> None:
    serve_as = {"name": "tiny", "host": "127.0.0.1", "port": engine.port}
    spec = {"instances": [serve_as]}
    stopped = serving.run(spec)["instances"]["tiny"]
    assert stopped == {"serves": False, "why": "gpufleet-tiny.service is inactive ()", "current": None}
    box.active = "active"
    assert serving.run(spec)["instances"]["tiny"] == {"serves": True, "why": "", "current": None}
    engine.health = 503
    assert serving.run(spec)["instances"]["tiny"]["why"] == f"port {engine.port}: /health says 503"
    engine.close()
    why = serving.run(spec)["instances"]["tiny"]["why"]
    assert why.startswith(f"port {engine.port}: ") and "refused" in why
