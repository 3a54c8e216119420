"""Events of boxes as people read them."""

from __future__ import annotations

from typing import Any

from gpufleet.history import document, merged, row

DIGEST = "3f0c000000000000"


def event(at: str, name: str, **more: Any) -> dict[str, Any]:
    return {"at": f"2026-11-29T17:{at}Z", "event": name, "instance": "qwen", **more}


def test_events_of_several_boxes_in_the_order_of_time() -> None:
    answers = {
        "one": {"events": [event("40:00", "activated"), event("42:00", "held")]},
        "two": {"events": [event("41:00", "activation", step="staged"), event("41:30", "activated")]},
    }
    assert [(item["box"], item["event"]) for item in merged(answers, False, 9)] == [
        ("one", "activated"),
        ("two", "activated"),
        ("one", "held"),
    ]
    assert [item["event"] for item in merged(answers, True, 3)] == ["activation", "activated", "held"]
    assert merged({}, True, 3) == []


def test_an_activation_in_a_line() -> None:
    gate = {"completion": "42", "tokens_per_second": 41.25}
    done = event("40:00", "activated", digest=DIGEST, restarted=True, seconds=63.1, down_seconds=38.0, gate=gate)
    assert row({"box": "turing-1", **done}) == (
        "2026-11-29T17:40:00Z",
        "turing-1",
        "qwen",
        "activated",
        f"{DIGEST}, 63.1 s, 38.0 s of it down, 41.2 tok/s",
    )
    quiet = event("40:00", "activated", digest=DIGEST, restarted=False, seconds=2)
    assert row(quiet)[-1] == f"{DIGEST}, not restarted, 2 s"


def test_a_failure_says_why_and_what_serves() -> None:
    failed = event("40:00", "gate-failed", digest=DIGEST, cause="no draft was made", back="14ba000000000000")
    assert row(failed)[-1] == f"{DIGEST}, no draft was made, back to 14ba000000000000"


def test_whatever_an_event_has_is_shown() -> None:
    assert row(event("40:00", "repaired", files=["serve.yaml", "serve.env"]))[-1] == "serve.yaml serve.env"
    assert (
        row(event("40:00", "activation", step="warming", to=DIGEST, attempts=2))[-1] == f"{DIGEST}, warming, attempts 2"
    )
    assert row({"event": "locked", "who": "anna", "lock": {"a": 1}, "x": None})[-1] == 'lock {"a": 1}, who anna'
    assert row({})[:4] == ("-", "", "", "?")


def test_secrets_in_causes_are_hidden() -> None:
    failed = event("40:00", "gate-failed", cause="args: {'api_key': ['abcdef']}", more=[{"x": "HF_TOKEN=abcdef"}])
    assert "abcdef" not in row(failed)[-1]
    page = document([failed])
    assert page["schema"] == 1 and "abcdef" not in str(page)
