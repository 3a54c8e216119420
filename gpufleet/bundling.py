"""What is in a bundle for a report of a problem: its pages, made of what is known of one box. No I/O."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from gpufleet import tables, terminal
from gpufleet.anonymity_text import Disguise
from gpufleet.document import document
from gpufleet.planning import Planned
from gpufleet.screen import screen
from gpufleet.settings import Expect, Fetch, Host, Mirrors, Rollout, Serve, Settings

SCHEMA = 1
PAGES = {
    "versions.json": "gpufleet, engines, packages of each runtime, driver, kernel, system",
    "facts.json": "what the look at the box told",
    "plan.json": "what is planned for it, with the source of each value, and what the rules say",
    "plan.txt": "the same as `gpufleet plan` shows it",
    "settings.json": "the settings that meet on it, and where each comes from",
    "status.json": "how each instance serves now, what differs, what a deploy would change",
    "state.json": "what the box remembers of its instances",
    "journal.jsonl": "what happened there, the last events",
    "gates.json": "what each gate said, and the speeds it measured",
    "processes.json": "how the engines were started, and the kernel's command line",
    "report.json": "the report of the last run with this box",
    "logs/": "the last lines of each instance's log",
}


# Of keys that no schema of ours has: what engines count, what boxes note.
_KEYS = (
    "tokens_per_second prompt_tokens_per_second down_seconds ready_seconds first_token_seconds accepted_tokens put_back"
)


def vocabulary() -> set[str]:
    """Names of keys that pages may have, in which a name is none: a box may be called `second`."""
    from gpufleet.facts import json_schema

    models = (Settings, Serve, Host, Mirrors, Fetch, Expect, Rollout)
    found = {name for model in models for name in model.model_fields} | set(_KEYS.split())
    schema = json_schema()
    for part in [schema, *schema["$defs"].values()]:
        found |= set(part.get("properties") or {})
    return found


@dataclass(frozen=True)
class Sources:
    """Everything that is known of a box, as it is; what could not be had is None, and `missing` says why.

    + fresh: whether the facts are of a look just now; else they are those that were kept
    + versions: of what runs on the controller
    + status: its entry of `gpufleet status --json`; + evidence: the answer of the kit's verb of that name
    + report: of the last run with this box
    """

    box: str
    at: str
    versions: Mapping[str, Any]
    facts: Mapping[str, Any] | None = None
    fresh: bool = False
    planned: Planned | None = None
    status: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    missing: list[str] = field(default_factory=list)


def raw(sources: Sources) -> dict[str, Any]:
    """The pages as they are, by name: JSON, or text. To be learned from, then disguised; never to be written."""
    evidence = sources.evidence or {}
    plan = sources.planned.plan if sources.planned else None
    events = list(evidence.get("events") or [])
    pages: dict[str, Any] = {
        "versions.json": versions(sources),
        "facts.json": sources.facts,
        "plan.json": document([sources.planned]) if sources.planned else None,
        "plan.txt": plan_text(sources.planned) if sources.planned else None,
        "settings.json": {"settings": plan.settings.model_dump(), "because": dict(plan.because)} if plan else None,
        "status.json": sources.status,
        "state.json": evidence.get("state"),
        "journal.jsonl": events or None,
        "gates.json": gates(events, evidence.get("state")) if sources.evidence else None,
        "processes.json": _started(evidence) if sources.evidence else None,
        "report.json": _of_the_box(sources),
    }
    logs = {f"logs/{name}.txt": "".join(f"{line}\n" for line in lines) for name, lines in _logs(evidence)}
    return {name: page for name, page in {**pages, **logs}.items() if page is not None}


def disguised(pages: Mapping[str, Any], missing: Iterable[str], disguise: Disguise) -> dict[str, str]:
    """The texts of the bundle's files, README.txt first; all names have stand-ins."""
    for page in [*pages.values(), list(missing)]:
        disguise.learn(page)  # of all, before the first is written: who is named here stands bare there
    texts = {disguise.text(name): _text(name, page, disguise) for name, page in pages.items()}
    return {"README.txt": disguise.text(_readme(texts, missing)), **texts}


def versions(sources: Sources) -> dict[str, Any]:
    """What runs where."""
    facts, planned = sources.facts or {}, sources.planned
    stacks = planned.plan.stacks if planned else []
    return {
        "schema": SCHEMA,
        "at": sources.at,
        "controller": dict(sources.versions),
        "system": facts.get("os"),
        "python": (facts.get("python") or {}).get("version"),
        "driver": facts.get("driver"),
        "cards": [gpu.get("name") for gpu in facts.get("gpus") or []],
        "nvidia_packages": {
            name: package.get("version") for name, package in (facts.get("nvidia_packages") or {}).items()
        },
        "stacks": {
            stack.name: stack.versions.model_dump(exclude_none=True) if stack.versions else None for stack in stacks
        },
        "runtimes": {
            name: {"packages": packages} for name, packages in ((sources.evidence or {}).get("packages") or {}).items()
        },
    }


def gates(events: Iterable[Mapping[str, Any]], state: Any) -> dict[str, Any]:
    """What the gates said by the journal, and the activations that each instance remembers, with their speeds."""
    said = [event for event in events if event.get("gate") or event.get("tokens_per_second")]
    instances = state.get("instances") if isinstance(state, Mapping) else None
    return {
        "gates": said,
        "history": {
            name: item.get("history")
            for name, item in (instances or {}).items()
            if isinstance(item, Mapping) and item.get("history")
        },
    }


def plan_text(planned: Planned) -> str:
    """As `gpufleet plan` prints it."""
    printed = io.StringIO()
    table = Table(box=None, pad_edge=False)
    for title in tables.COLUMNS:
        table.add_column(title, overflow="fold")
    for row in tables.rows(planned):
        terminal.add_row(table, *row)
    screen(printed).print(table)
    rows = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join([*rows, "", *(line for line, _ in tables.notes(planned))]) + "\n"


def _started(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """How engines and kernel were started, as command lines: a secret's name and its value are words of one text."""
    argv = {name: shlex.join(words) for name, words in evidence["argv"].items()}
    return {"engines": argv, "kernel": evidence["cmdline"]}


def _logs(evidence: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    return (evidence.get("logs") or {}).items()


def _of_the_box(sources: Sources) -> dict[str, Any] | None:
    """The last report without what it says of other boxes."""
    if sources.report is None:
        return None
    boxes = sources.report.get("boxes") or {}
    return {**sources.report, "boxes": {name: found for name, found in boxes.items() if name == sources.box}}


def _text(name: str, page: Any, disguise: Disguise) -> str:
    if name.endswith(".jsonl"):
        return "".join(json.dumps(disguise.document(item), ensure_ascii=False) + "\n" for item in page)
    return disguise.text(page) if isinstance(page, str) else disguise.json(page)


def _readme(texts: Mapping[str, str], missing: Iterable[str]) -> str:
    shown = {**{name: said for name, said in PAGES.items() if name in texts}}
    if any(name.startswith("logs/") for name in texts):
        shown["logs/"] = PAGES["logs/"]
    lines = [
        "A bundle of `gpufleet bundle`: one box, for a report of a problem, or to show that a recipe runs.",
        "",
        *(f"    {name:<15} {said}" for name, said in shown.items()),
        "",
        "Names of boxes, hosts and people, addresses, keys, tokens, serials and UUIDs have stand-ins, the same in all",
        "files, or are hidden. They were found by their forms, and by the names that gpufleet and the box know. That",
        "is no proof: look it through before you pass it on, above all the logs.",
    ]
    if gone := list(missing):
        lines += ["", "Not in it:", *(f"    {line}" for line in gone)]
    return "\n".join(lines) + "\n"
