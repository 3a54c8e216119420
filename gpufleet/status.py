"""The state of a fleet as `gpufleet status --json` prints it: from looks at boxes and what their instances answer.

Documented in docs/reference/commands.md; what is there keeps its meaning as long as `schema` is the same. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpufleet.errors import BoxError
from gpufleet.masking import text
from gpufleet.pending import Pending
from gpufleet.traits import traits_of

SCHEMA = 1
# States in which an instance does not do what it should, and nothing is under way that changes that.
BAD = frozenset(["not answering", "restarting", "failed", "stopped"])
LOCK = ("id", "who", "host", "pid", "run", "what", "since", "until")


def document(at: str, boxes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All boxes, as one page of JSON."""
    return {"schema": SCHEMA, "at": at, "boxes": list(boxes)}


def unreachable(name: str, error: BoxError) -> dict[str, Any]:
    """A box that could not be looked at."""
    return {**_empty(name), "error": {"cause": error.cause, "remedy": error.remedy}}


def of_box(
    name: str, facts: Mapping[str, Any], serving: Mapping[str, Any], wanted: Pending | None, why_not: str = ""
) -> dict[str, Any]:
    """One box.

    + serving: the answer of the kit's verb `health`, by instance
    + wanted: what a deploy would do; None where that cannot be told, for the reason `why_not`
    """
    found = {
        each: _instance(each, item, serving.get(each) or {}) for each, item in (facts.get("instances") or {}).items()
    }
    for item in found.values():
        item["drift"] += _gone(facts, item)
    instances = [item for item in found.values() if item["state"] != "retired"]
    return {
        **_empty(name),
        "at": facts.get("at"),
        "traits": traits_of(facts),
        "driver": (facts.get("driver") or {}).get("version"),
        "lock": lock_of(facts),
        "problems": [f"{error['source']}: {error['message']}" for error in facts.get("errors") or []],
        "drift": _of_the_box(wanted) if instances else [],  # on a bare box nothing can have drifted
        "changes": wanted.changes.lines() if wanted else None,
        "refused": [f"{each.message} [{each.label}]" for each in wanted.refused] if wanted else [],
        "not_planned": why_not or None,
        "instances": instances,
    }


def is_bad(box: Mapping[str, Any]) -> bool:
    """Whether a box could not be looked at, or has an instance that does not serve."""
    return bool(box["error"]) or any(item["state"] in BAD for item in box["instances"])


def lock_of(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who holds the fleet's lock on a box, as of the box's own clock; one that has run out is none."""
    lock = facts.get("lock")
    if not lock or (lock.get("until") and facts.get("at") and lock["until"] < facts["at"]):
        return None
    return {key: lock.get(key) for key in LOCK}


def _empty(name: str) -> dict[str, Any]:
    lists: dict[str, Any] = {key: [] for key in ("traits", "problems", "drift", "refused", "instances")}
    nothing = dict.fromkeys(("error", "at", "driver", "lock", "changes", "not_planned"))
    return {"name": name, **nothing, **lists}


def _of_the_box(wanted: Pending | None) -> list[str]:
    """What differs on the box beside its instances: packages, holds, settings of the host.

    A runtime or model that a deploy would bring is none of it: what serves may do without. What somebody put beside a
    unit is, though no deploy takes it away.
    """
    if not wanted:
        return []
    of_the_host = replace(wanted.changes, runtimes=[], models=[], instances=[], leaving=[])
    return [*of_the_host.lines(), *(finding.message for finding in wanted.of_others)]


def _gone(facts: Mapping[str, Any], item: Mapping[str, Any]) -> list[str]:
    """What an instance runs on and the box does not have whole."""
    return [
        f"{kind} {item[kind]}: not whole"
        for kind in ("runtime", "model")
        if item[kind] and not ((facts.get(kind + "s") or {}).get(item[kind]) or {}).get("complete")
    ]


def _instance(name: str, found: Mapping[str, Any], serving: Mapping[str, Any]) -> dict[str, Any]:
    service, health, metrics = found.get("service") or {}, serving.get("health"), serving.get("metrics")
    history = found.get("history") or []
    runtime = serving.get("runtime")
    state, why = state_of(found, health)
    return {
        "name": name,
        "state": state,
        "why": text(why),
        "since": service.get("since"),
        "release": found.get("current"),
        "gated": found.get("gated"),
        "port": serving.get("port") or found.get("port"),
        "service": {key: service.get(key) for key in ("active", "sub", "enabled", "restarts", "pid")},
        "health": health,
        "metrics": dict(metrics) if metrics else None,
        "speed": {
            "now": (metrics or {}).get("tokens_per_second"),
            "gate": next((each["tokens_per_second"] for each in history[::-1] if each.get("tokens_per_second")), None),
        },
        "stack": re.sub(r"-[0-9a-f]{12}$", "", runtime) if runtime else None,
        "runtime": runtime,
        "model": serving.get("model"),
        "drift": list(found.get("drift") or []),
        "held": found.get("held"),
        "activation": found.get("activation"),
        "last": history[-1] if history else None,
    }


def state_of(found: Mapping[str, Any], health: Mapping[str, Any] | None) -> tuple[str, str]:
    """(state, why) of an instance, by what systemd, the box's own notes and the engine say of it."""
    service, activation = found.get("service") or {}, found.get("activation")
    active, sub = service.get("active"), service.get("sub")
    if activation:
        return "activating", f"{activation.get('step')}, to {activation.get('to')}"
    if active in ("active", "reloading"):
        if health and health.get("ok"):
            return "serving", ""
        why = str((health or {}).get("said") or "its port is not known")
        passed = found.get("gated") == found.get("current") and not found.get("stale")
        return ("not answering", why) if passed else ("starting", why)
    if sub == "auto-restart":
        return "restarting", f"it was started {int(service.get('restarts') or 0) + 1} times"
    if active in ("activating", "deactivating"):
        return ("starting" if active == "activating" else "stopped"), str(sub or "")
    if not found.get("current"):
        return "retired", ""
    if active == "failed":
        return "failed", f"after {service.get('restarts') or 0} restarts"
    return "stopped", f"its service is {active or 'unknown'}"
