"""Why an instance is to be activated: what differs on the box, and whether its service goes down for it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
    """What differs. + restarts: whether putting it right restarts the service"""

    NEW = "it is not on the box", True
    RELEASE = "it serves another release", True
    CURRENT = "its `current` link", False
    FILE = "a file of its release", True
    LINK = "a link of its release", False
    UNIT = "its unit is another: what ran need not be ours", True
    UNIT_GONE = "its unit is gone", False
    SERVICE = "its service does not run", True
    DISABLED = "its service does not start at boot", False
    RUNTIME = "a process that was started on what is replaced would go on with what it has read of it", True
    MODEL = "its model is put in place anew", True
    UNFINISHED = "an activation that did not end", True

    def __init__(self, meaning: str, restarts: bool) -> None:
        self.meaning, self.restarts = meaning, restarts


@dataclass(frozen=True)
class Reason:
    """One thing that differs. + text: as it is shown"""

    kind: Kind
    text: str


NEW = Reason(Kind.NEW, "new")


def found(facts: Mapping[str, Any], digest: str, renewed: bool, moved: bool) -> list[Reason]:
    """All that differs of an instance that is on the box.

    + facts: of the instance; + digest: the release that it should serve
    + renewed, moved: whether its runtime, its model are put in place anew by this deploy
    """
    reasons = [*_release(facts, digest), *(drifted(line) for line in facts.get("drift") or [])]
    service = facts.get("service") or {}
    if service.get("active") != "active":
        reasons.append(Reason(Kind.SERVICE, f"its service is {service.get('active') or 'not there'}"))
    if service.get("enabled") is False:
        reasons.append(Reason(Kind.DISABLED, "its service is not enabled"))
    reasons += [Reason(Kind.RUNTIME, "its runtime is installed anew")] if renewed else []
    reasons += [Reason(Kind.MODEL, "its model is put in place anew")] if moved else []
    return [*reasons, *_unfinished(facts, digest, bool(reasons))]


def drifted(line: str) -> Reason:
    """Of a line of the box's drift: `serve.yaml: modified`, `runtime: missing`, `/etc/systemd/system/…: missing`."""
    path, _, how = line.rpartition(": ")
    if path.startswith("/"):
        return Reason(Kind.UNIT_GONE if how == "missing" else Kind.UNIT, line)
    return Reason(Kind.LINK if path in ("runtime", "model") else Kind.FILE, line)


def _release(facts: Mapping[str, Any], digest: str) -> list[Reason]:
    current = facts.get("current")
    if current is None and facts.get("gated") == digest:
        return [Reason(Kind.CURRENT, "its current link is gone")]
    if current != digest:
        return [Reason(Kind.RELEASE, f"its configuration changed (was {current or 'none'})")]
    return []


def _unfinished(facts: Mapping[str, Any], digest: str, others: bool) -> list[Reason]:
    """An activation that was cut off, or is still under way on the box: then this one comes after it."""
    activation = facts.get("activation")
    if activation:
        text = f"its activation of {activation['to']} did not end (at {activation['step']})"
        return [Reason(Kind.UNFINISHED, text)]
    if not others and (facts.get("gated") != digest or facts.get("stale")):
        return [Reason(Kind.UNFINISHED, "an earlier activation did not end")]
    return []
