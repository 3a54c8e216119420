"""Why an instance is activated, by kind: what goes down for it is decided by that and not by its words."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.reasons import Kind, drifted, found

DIGEST = "1" * 16
UNIT = "/etc/systemd/system/gpufleet-tiny.service"


def facts(**more: Any) -> dict[str, Any]:
    service = {"active": "active", "sub": "running", "enabled": True}
    return {"current": DIGEST, "gated": DIGEST, "stale": False, "drift": [], "service": service, **more}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("serve.yaml: modified", Kind.FILE),
        ("serve.env: missing", Kind.FILE),
        ("manifest.json: modified", Kind.FILE),
        ("runtime: missing", Kind.LINK),
        ("model: modified", Kind.LINK),
        (f"{UNIT}: missing", Kind.UNIT_GONE),
        (f"{UNIT}: modified", Kind.UNIT),
        (f"{UNIT}: masked", Kind.UNIT),
    ],
)
def test_drift_by_kind(line: str, kind: Kind) -> None:
    reason = drifted(line)
    assert (reason.kind, reason.text) == (kind, line)
    assert reason.kind.restarts is (kind in (Kind.FILE, Kind.UNIT))


@pytest.mark.parametrize(
    ("more", "renewed", "kinds"),
    [
        ({}, False, []),
        ({"current": None}, False, [Kind.CURRENT]),
        ({"current": None, "gated": None}, False, [Kind.RELEASE]),
        ({"service": {"active": "failed", "enabled": False}}, False, [Kind.SERVICE, Kind.DISABLED]),
        ({"stale": True}, False, [Kind.UNFINISHED]),
        ({"stale": True, "drift": ["serve.env: missing"]}, True, [Kind.FILE, Kind.RUNTIME]),
        ({"activation": {"to": DIGEST, "step": "gating"}}, True, [Kind.RUNTIME, Kind.UNFINISHED]),
    ],
)
def test_all_that_differs(more: dict[str, Any], renewed: bool, kinds: list[Kind]) -> None:
    assert [reason.kind for reason in found(facts(**more), DIGEST, renewed, False)] == kinds


def test_a_model_that_is_put_in_place_anew() -> None:
    assert [reason.kind for reason in found(facts(), DIGEST, False, True)] == [Kind.MODEL]
