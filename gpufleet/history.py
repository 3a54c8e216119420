"""Events of the boxes' journals as lines for people, and as JSON. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpufleet import masking

SCHEMA = 1
COLUMNS = ("when", "box", "instance", "event", "details")
# One activation has some ten of these; that it began and how it ended is told by others.
STEPS = "activation"
MANY = 5  # names in a line
_OWN = ("at", "event", "instance", "box", "began", "run")


def merged(answers: Mapping[str, Mapping[str, Any]], steps: bool, count: int) -> list[dict[str, Any]]:
    """The last `count` events of all boxes, oldest first, each with its `box`.

    + answers: of the kit's verb `journal`, by box
    + steps: with each step of an activation
    """
    found = [{"box": box, **event} for box, answer in answers.items() for event in answer["events"]]
    found = [event for event in found if steps or event.get("event") != STEPS]
    found.sort(key=lambda event: str(event.get("at")))  # stable: a box's own order stays
    return found[-count:] if count else []


def document(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What `gpufleet history --json` prints: the events as the boxes wrote them, secrets hidden."""
    return {"schema": SCHEMA, "events": masking.document(list(events))}


def row(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The line of one event."""
    return (
        str(event.get("at") or "-"),
        str(event.get("box") or ""),
        str(event.get("instance") or ""),
        str(event.get("event") or "?"),
        masking.text(", ".join(_details(event))),
    )


def _details(event: Mapping[str, Any]) -> Iterable[str]:
    known = {key: value for key, value in event.items() if key not in _OWN}
    gate = known.pop("gate", None)
    digest = known.pop("digest", None) or known.pop("to", None)
    if digest:
        yield str(digest)
    if known.get("step"):
        yield str(known.pop("step"))
    if known.pop("restarted", None) is False:
        yield "not restarted"
    for key, words in (("seconds", "{} s"), ("down_seconds", "{} s of it down"), ("ready_seconds", "ready after {} s")):
        if (value := known.pop(key, None)) is not None:
            yield words.format(value)
    if isinstance(gate, Mapping) and gate.get("tokens_per_second"):
        yield f"{gate['tokens_per_second']:.1f} tok/s"
    for key in ("cause", "back", "from", "by", "files"):
        if value := known.pop(key, None):
            yield f"{'back to ' if key == 'back' else key + ' ' if key in ('from', 'by') else ''}{_said(value)}"
    for key, value in sorted(known.items()):
        if value not in (None, "", [], {}):
            yield f"{key} {_said(value)}"


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value[:MANY]) + (f" and {len(value) - MANY} more" if len(value) > MANY else "")
    return json.dumps(value, sort_keys=True)
