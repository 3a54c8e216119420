"""How adopted services are shown: lines for a reader, lines for the inventory, and one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpufleet.adopting import TITLES, Adopted, version
from gpufleet.adopting_box import Looked
from gpufleet.adopting_item import Item
from gpufleet.masking import document as masked

WIDTH = 100
HEADINGS = {
    "entry": "given by the entry",
    "removed": "taken away by the entry, as the old service does not have it",
    "added": "the old service does not have it",
    "changed": "otherwise here",
    "left": "not carried over: see to it",
}


def lines(found: Adopted) -> Iterator[str]:
    """What is said of one service."""
    yield headline(found.service)
    if found.page is None or found.instance is None:
        yield f"  not adopted: {found.why_not}"
        return
    page, instance = found.page, found.instance
    files = found.service["model"].get("files") or {}
    size = sum(file["size"] for file in files.values()) / 1e9
    whole = "" if page.problems else ", whole: shards, index and sizes agree"
    yield f"  model {page.model.source.path}: {len(files)} files, {size:.1f} GB{whole}"
    yield f"  page {page.model.name}: {page.of}"
    for line in [*page.problems, *(f"note: {note}" for note in page.notes)]:
        yield f"  {line}"
    yield f"  by {instance.stack.name} on {_cards(instance.gpus)}, port {instance.port}"
    keys = [item.key for item in found.items if item.kind == "default"]
    if same := list(dict.fromkeys(key if key.startswith("env.") else key.partition(".")[0] for key in keys)):
        yield f"  so by default already ({len(same)}): {', '.join(same)}"
    for kind, heading in HEADINGS.items():
        chosen = [item for item in found.items if item.kind == kind]
        if chosen:
            yield f"  {heading}:"
            yield from (f"    {said(item)}" for item in chosen)
    if found.stop:
        yield f"  no unit of the system starts it, so that no deploy can stop it: {found.stop}"


def whole(box: str, looked: Looked, idle: Sequence[Mapping[str, Any]], inventory: str, written: bool) -> Iterator[str]:
    """All that is said: each service, units that do not run, findings, what to put where.

    + inventory: as the caller has to write it; + written: whether new pages were written
    """
    for item in looked.services:
        yield from lines(item)
        yield ""
    taken = {unit for entry in looked.kept for unit in entry.get("replaces") or ()}  # off because an instance serves
    for unit in (each for each in idle if each["unit"] not in taken):
        engine = TITLES.get(unit["engine"], unit["engine"])
        yield f"{unit['unit']} ({unit['fragment']}) starts {engine} and does not run: start it to have it adopted"
    if not looked.services:
        yield f"{box}: nothing serves a language model there"
    if looked.planned is None:
        return
    findings = [item for item in looked.planned.findings if item.level != "info"]
    if findings:
        yield "what the rules say of the plan with it:"
        yield from (f"  {item.level}: {item.label}: {item.message}: {item.remedy}" for item in findings)
        yield ""
    pages = [item.page for item in looked.services if item.page and item.page.text is not None]
    broken = [page for page in pages if page.problems]
    if written:
        yield from (f"{page.model.name}: no page is written before that is put right" for page in broken)
    if pages and not written:
        yield f"first the pages of its models: `gpufleet adopt {inventory} {box} --write` writes them:"
        yield from (f"  files/models/{page.model.name}.yaml" for page in pages)
    yield f"put into {inventory}, into the data of {box}:"
    yield ""
    yield from (f"    {line}" for line in for_inventory(looked.entries, looked.kept))
    yield ""
    yield f"`gpufleet plan {inventory} --limit {box}` shows what that comes to, and"
    yield f"`gpufleet deploy {inventory} --limit {box}` does it"


def headline(service: Mapping[str, Any]) -> str:
    """`vllm.service: vLLM 0.24.0, user ai, pid 812, port 8000, starts at boot, answers to qwen-local`."""
    who = service.get("unit") or ("a container" if service.get("scope") == "container" else "started by hand")
    if service.get("scope") == "user":
        who = f"{who} of the user {service.get('user')}"
    engine = TITLES.get(service["engine"], service["engine"])
    parts = [f"{engine} {version(service) or ''}".strip(), f"user {service.get('user')}", f"pid {service['pid']}"]
    parts.append(f"port {service['port']}" if service.get("port") else "no port")
    if service.get("gpus"):
        parts.append(_cards(service["gpus"]))
    if service.get("enabled"):
        parts.append("starts at boot" if service["enabled"] == "enabled" else f"at boot: {service['enabled']}")
    served = service.get("served") or {}
    if served.get("names"):
        parts.append(f"answers to {', '.join(served['names'])}")
    elif served.get("error"):
        parts.append(served["error"])
    return f"{who}: {', '.join(parts)}"


def _cards(gpus: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, gpus))}" if gpus else "the CPU"


def said(item: Item) -> str:
    """One line of an item: `max-num-seqs: 3 (over 1 by model x)`."""
    if item.kind == "entry":
        return f"{item.key}: {_short(item.old)} ({item.why})"
    if item.kind == "removed":
        return f"{item.key} ({item.why})"
    if item.kind == "added":
        return f"{item.key}: {_short(item.new)} ({item.why})"
    new = "" if item.new is None else f" → {_short(item.new)}"
    return f"{item.key}: {_short(item.old)}{new} ({item.why})"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}…"


def for_inventory(entries: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The `serve` lines of a box's data, as they are put into the inventory.

    + kept: entries that the inventory has for the box and that stay
    """
    serve = [item["model"] if set(item) == {"model"} else dict(item) for item in kept]
    return f'"serve": {literal([*serve, *map(dict, entries)], 0, len(chr(34) * 9))},'.split("\n")


def literal(value: Any, indent: int, before: int = 0) -> str:
    """A value as Python writes it, broken over lines where it does not fit.

    + indent: of the line that it begins in; + before: characters that stand before it there
    """
    flat = _flat(value)
    if indent + before + len(flat) < WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner, pad = indent + 4, " " * indent
    if isinstance(value, list):
        body = [literal(item, inner) for item in value]
        opened, closed = "[", "]"
    else:
        named = [(json.dumps(key, ensure_ascii=False), item) for key, item in value.items()]
        body = [f"{key}: {literal(item, inner, len(key) + 2)}" for key, item in named]
        opened, closed = "{", "}"
    return "\n".join([opened, *(f"{' ' * inner}{line}," for line in body), f"{pad}{closed}"])


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_flat(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def document(box: str, looked: Looked, idle: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All of it as JSON. + idle: units that would start a server and have none running"""
    findings = [
        {"code": item.code, "level": item.level, "message": item.message, "remedy": item.remedy}
        for item in (looked.planned.findings if looked.planned else [])
    ]
    services = [_service(item) for item in looked.services]
    whole: dict[str, Any] = masked({"box": box, "services": services, "idle": list(idle), "findings": findings})
    return {"schema": 1, **whole}


def _service(found: Adopted) -> dict[str, Any]:
    service = found.service
    keys = ("unit", "scope", "fragment", "enabled", "engine", "user", "pid", "port", "gpus")
    told = {key: service.get(key) for key in keys}
    told["version"] = version(service)
    told["names"] = (service.get("served") or {}).get("names")
    if found.page is None or found.instance is None:
        return {**told, "adopted": False, "why": found.why_not, "entry": None}
    page, instance = found.page, found.instance
    return {
        **told,
        "adopted": True,
        "why": None,
        "entry": dict(found.entry or {}),
        "stop": found.stop,
        "model": {
            "name": page.model.name,
            "path": page.model.source.path,
            "page": page.text,
            "of": page.of,
            "problems": list(page.problems),
            "notes": list(page.notes),
        },
        "stack": instance.stack.name,
        "args": instance.args,
        "env": instance.env,
        "items": [vars(item) for item in found.items],
    }
