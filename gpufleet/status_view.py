"""`gpufleet status` for people: a line for each instance, then what is to be known besides, a line each. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gpufleet.status import BAD

COLUMNS = ("box", "instance", "state", "since", "release", "speed", "runtime", "model")
UNDER_WAY = {"rollback": "a rollback", "restart": "a restart"}
STYLES = {"bad": "red", "note": "yellow", "": ""}


def rows(box: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The lines of one box."""
    if box["error"]:
        return [(box["name"], "", "unreachable", *[""] * 5)]
    if not box["instances"]:
        return [(box["name"], "-", "serves nothing", *[""] * 5)]
    return [
        (
            box["name"] if number == 0 else "",
            item["name"],
            f"{item['state']}{', held' if item['held'] else ''}",
            ago(item["since"], box["at"]),
            item["release"] or "-",
            speed(item),
            item["runtime"] or "",
            item["model"] or "",
        )
        for number, item in enumerate(box["instances"])
    ]


def speed(item: Mapping[str, Any]) -> str:
    """`38.5 tok/s, 2 running, 1 waiting, KV 12 %, 71 % of drafts accepted`, or the speed that it last showed."""
    counted = item["metrics"]
    parts: list[str] = []
    if counted:
        now, running, waiting = item["speed"]["now"], counted.get("running") or 0, counted.get("waiting") or 0
        if now or running:
            parts.append(f"{now or 0:.1f} tok/s, {running:.0f} running")
        else:
            parts.append("idle")
        parts += [f"{waiting:.0f} waiting"] if waiting else []
        parts += [f"KV {counted['kv_cache'] * 100:.0f} %"] if counted.get("kv_cache") else []
        if counted.get("draft_tokens"):
            share = (counted.get("accepted_tokens") or 0) / counted["draft_tokens"]
            parts.append(f"{share * 100:.0f} % of drafts accepted")
    if item["speed"]["gate"] and not item["speed"]["now"]:
        parts.append(f"{item['speed']['gate']:.1f} tok/s at its gate")
    return ", ".join(parts)


def notes(box: Mapping[str, Any], inventory: str) -> Iterator[tuple[str, str]]:
    """(line, style): what is wrong, what is under way, what a deploy would do."""
    name = box["name"]
    if box["error"]:
        yield f"{name}: {box['error']['cause']}. {_sentence(box['error']['remedy'])}.", "bad"
        return
    if lock := box["lock"]:
        yield f"{name}: {locked(lock)}", "note"
    for item in box["instances"]:
        who = f"{name}/{item['name']}"
        if item["state"] in BAD:
            yield f"{who}: {item['state']}: {item['why']}. See `gpufleet logs {inventory} {who}`.", "bad"
        if under_way := item["activation"]:
            since = moment(under_way.get("began"))
            again = f", try {under_way['attempts']}" if (under_way.get("attempts") or 0) > 1 else ""
            before = f" from {under_way['from']}" if under_way.get("from") else ""
            what = UNDER_WAY.get(under_way.get("verb") or "", "an activation")
            yield (
                f"{who}: {what} is under way{before} to {under_way.get('to')}: {under_way.get('step')}{since}{again}",
                "note",
            )
        elif item["gated"] != item["release"] and item["state"] not in BAD:
            yield f"{who}: release {item['release']} has not passed its gate", "note"
        if held := item["held"]:
            yield held_line(who, held, inventory), "note"
        for line in item["drift"]:
            yield f"{who}: drift: {line}", "note"
    for line in box["drift"]:
        yield f"{name}: drift: {line}", "note"
    for line in box["problems"]:
        yield f"{name}: not read: {line}", "note"
    for line in box["refused"]:
        yield f"{name}: a deploy is refused: {line}", "note"
    if box["not_planned"]:
        yield f"{name}: what a deploy would do cannot be told: {box['not_planned']}", "note"
    if box["changes"]:
        count = len(box["changes"])
        what = f"{count} things" if count > 1 else "one thing"
        yield f"{name}: a deploy would change {what}: `gpufleet diff {inventory} --limit {name}`", ""


def held_line(who: str, held: Mapping[str, Any], inventory: str) -> str:
    """That an instance is held, at what, since when, by whom, until what."""
    by = f" by {held['by']}" if held.get("by") else ""
    return (
        f"{who}: held at {held.get('digest')} since {held.get('since')}{by}: a deploy leaves it, until "
        f"`gpufleet unhold {inventory} {who}`"
    )


def locked(lock: Mapping[str, Any]) -> str:
    """`locked by anna on laptop since …: deploy (pid 123), until … unless renewed`"""
    what = f": {lock['what']}" if lock.get("what") else ""
    pid = f" (pid {lock['pid']})" if lock.get("pid") else ""
    until = f"; it runs out at {lock['until']}" if lock.get("until") else ""
    host = f" on {lock['host']}" if lock.get("host") else ""
    return f"locked by {lock.get('who') or 'somebody'}{host}{pid} since {lock.get('since') or 'unknown'}{what}{until}"


def ago(since: str | None, now: str | None) -> str:
    """`40 s`, `12 min`, `5 h`, `9 d` between two moments of one clock."""
    begun, ended = _parsed(since), _parsed(now)
    if begun is None or ended is None:
        return ""
    seconds = max((ended - begun).total_seconds(), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(epoch: Any) -> str:
    """`, since 2026-11-29T17:40:00Z` of seconds since the epoch."""
    if not isinstance(epoch, int | float):
        return ""
    return f", since {datetime.fromtimestamp(epoch, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}"


def _parsed(stamp: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
