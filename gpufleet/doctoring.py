"""A preflight: what would keep a deploy from going well on a box, a line for each thing that was looked at. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from gpufleet import room
from gpufleet.errors import BOX_FAILED, DONE, REFUSED, WRONG
from gpufleet.paths import ROOT
from gpufleet.pending import Pending
from gpufleet.rules import Finding
from gpufleet.status import lock_of

SCHEMA = 1
Level = Literal["ok", "warning", "error"]
# Of the controller's clock. Half a minute is no trouble, and a sign that nobody keeps it; after some hours apt calls
# lists "not valid yet", and certificates are refused.
SKEW_SECONDS, SKEW_ERROR_SECONDS = 30.0, 3600.0
CONTROLLER = "controller"
# The check that a rule belongs to: by its code, else by its first digit.
OF_RULES = {"GF107": "secure boot", "GF603": "disk", "GF604": "ports", "GF605": "look", "GF609": "clock"}
KINDS = {"1": "driver", "2": "toolkit", "3": "links", "4": "memory", "5": "flags", "6": "system"}


@dataclass(frozen=True)
class Line:
    """What one check found. + code: of the rule that says so"""

    check: str
    level: Level
    cause: str
    remedy: str = ""
    code: str | None = None


@dataclass
class Seen:
    """What the steps of a look told of a box; `failure` is the last line, where one ended it.

    + step: the one under way; + asked: (before, after) the look, by the controller's clock, seconds since 1970
    + checks: the answer of the kit's verb `doctor`
    """

    box: str
    lines: list[Line] = field(default_factory=list)
    failure: Line | None = None
    step: str = "ssh"
    facts: dict[str, Any] | None = None
    asked: tuple[float, float] = (0.0, 0.0)
    checks: dict[str, Any] | None = None

    def passed(self, check: str, said: str) -> None:
        self.lines.append(Line(check, "ok", said))

    def ended(self, check: str, cause: str, remedy: str) -> None:
        self.failure = Line(check, "error", cause, remedy)


@dataclass(frozen=True)
class Box:
    """All lines of a box, and the exit code that it asks for."""

    name: str
    lines: list[Line]
    code: int

    @property
    def level(self) -> Level:
        levels = {line.level for line in self.lines}
        return "error" if "error" in levels else "warning" if "warning" in levels else "ok"


def examined(seen: Seen, wanted: Pending | None, wrong: Sequence[str], needed: Mapping[str, str]) -> Box:
    """Everything about one box.

    + wanted: what a deploy would do; None where the look ended before, or its settings are `wrong`, a text each
    + needed: what each address that it was asked for is needed for
    """
    lines = [*seen.lines, *([seen.failure] if seen.failure else [])]
    facts = seen.facts
    if facts:
        lines += clock(facts, seen.asked)
    if facts and seen.checks:
        needs_apt = bool(wanted and wanted.changes.packages)
        lines += apt(seen.checks["apt"], facts, needs_apt)
        lines += network(seen.checks["addresses"], needed, needs_apt)
    lines += [Line("settings", "error", problem) for problem in wrong]
    if facts and wanted:
        lines += found_by_rules(facts, wanted)
    if facts and (lock := lock_of(facts)):
        who = f"{lock['who']}@{lock['host']}"
        lines.append(Line("lock", "warning", f"{who} deploys right now, since {lock['since']}", "wait for its end"))
    # what is in order of a check that also found something is no news
    amiss = {line.check for line in lines if line.level != "ok"}
    lines = [line for line in lines if line.level != "ok" or line.check not in amiss]
    return Box(seen.box, lines, _code(lines, bool(wrong)))


def _code(lines: Iterable[Line], wrong: bool) -> int:
    errors = [line for line in lines if line.level == "error"]
    if wrong:
        return WRONG
    if any(line.code is None for line in errors):
        return BOX_FAILED
    return REFUSED if errors else DONE


def exit_code(boxes: Iterable[Box]) -> int:
    """The first of 2, 1, 3 that some box asks for; else 0."""
    codes = {box.code for box in boxes}
    return next((code for code in (WRONG, BOX_FAILED, REFUSED) if code in codes), DONE)


def document(at: str, boxes: Iterable[Box]) -> dict[str, Any]:
    """What `gpufleet doctor --json` prints."""
    return {
        "schema": SCHEMA,
        "at": at,
        "boxes": [
            {"name": box.name, "level": box.level, "checks": [line.__dict__ for line in box.lines]} for box in boxes
        ],
    }


def clock(facts: Mapping[str, Any], asked: tuple[float, float]) -> Iterator[Line]:
    """How far the box's clock is from the controller's."""
    said = (facts.get("clock") or {}).get("now")
    if not said:
        return
    now = datetime.strptime(said, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    before, after = asked
    apart = now - after if now > after else min(now + 1 - before, 0.0)  # whole seconds are told
    if abs(apart) < SKEW_SECONDS:
        yield Line("clock", "ok", "as the controller's")
        return
    where = "ahead of" if apart > 0 else "behind"
    level: Level = "error" if abs(apart) > SKEW_ERROR_SECONDS else "warning"
    yield Line(
        "clock",
        level,
        f"{_span(abs(apart))} {where} the controller's: apt and downloads refuse signatures and certificates",
        "put it right on the machine that is wrong: timedatectl set-ntp true",
    )


def apt(found: Mapping[str, Any], facts: Mapping[str, Any], needed: bool) -> Iterator[Line]:
    """Whether apt could be called now. What is wrong is an error only where packages have to be installed."""
    wrong: Level = "error" if needed else "warning"
    fine = True
    for lock in found["locks"]:
        who = f"{lock['command'] or 'a program'} (pid {lock['pid'] or 'unknown'})"
        fine = False
        yield Line("apt", "warning", f"{who} holds {lock['path']}", "wait for it, often unattended-upgrades")
    if found["broken"]:
        fine = False
        yield Line(
            "apt", wrong, f"dpkg did not get to the end of {_few(found['broken'])}",
            "run `dpkg --configure -a` and `apt-get -f install` on the box",
        )  # fmt: skip
    elif found["interrupted"]:
        fine = False
        yield Line("apt", "warning", "dpkg was interrupted", "a deploy runs `dpkg --configure -a` first")
    if found["said"]:
        fine = False
        yield Line("apt", wrong, f"it cannot read its sources: {_line(found['said'])}", "mend the file that it names")
    if fine:
        held = len(facts.get("holds") or [])
        yield Line("apt", "ok", f"free, {held} packages on hold" if held else "free")


def network(answers: Mapping[str, Mapping[str, Any]], needed: Mapping[str, str], apt_needed: bool) -> Iterator[Line]:
    """Whether addresses answer; of one host that does not, one line."""
    failed: dict[tuple[str, str], list[str]] = {}
    for url, answer in answers.items():
        if said := unanswered(answer):
            failed.setdefault((_host(url), said), []).append(url)
    for (host, said), urls in failed.items():
        of_apt = urls[0] not in needed
        level: Level = "error" if (apt_needed if of_apt else True) else "warning"
        what = "its apt sources" if of_apt else needed[urls[0]]
        remedy = "mend the box's apt sources, or its network" if of_apt else "mend the box's network, or set `mirrors`"
        yield Line("network", level, f"{host}: {said} (for {what})", remedy)
    if answers and not failed:
        hosts = list(dict.fromkeys(_host(url) for url in answers))
        yield Line("network", "ok", f"{_few(hosts)} answer{'s' if len(hosts) == 1 else ''}")


def unanswered(answer: Mapping[str, Any]) -> str:
    """Why an address gives nothing; empty for one that is fine. What a server says of a HEAD alone counts little."""
    status = answer.get("status")
    if status is not None:
        return f"it answers {status}" if status in (404, 407, 410) or (status >= 500 and status != 501) else ""
    words = {
        "name": "its name does not resolve",
        "certificate": "its certificate is not accepted",
        "time": "no answer",
        "address": "it is no address",
    }
    return f"{words.get(str(answer.get('kind')), 'no connection')} ({answer.get('said')})"


def found_by_rules(facts: Mapping[str, Any], wanted: Pending) -> Iterator[Line]:
    """What the rules find; then what is in order, where they could have found something."""
    said: set[str] = set()
    for finding in wanted.findings:
        if finding.level == "info":
            continue
        check = check_of(finding)
        said.add(check)
        yield Line(check, finding.level, f"{finding.message} [{finding.label}]", finding.remedy, finding.code)
    for check, words in _in_order(facts, wanted):
        if check not in said:
            yield Line(check, "ok", words)


def check_of(finding: Finding) -> str:
    return OF_RULES.get(finding.code) or KINDS.get(finding.code[2:3], "system")


def _in_order(facts: Mapping[str, Any], wanted: Pending) -> Iterator[tuple[str, str]]:
    disks = []
    for path, need in room.needs(wanted.plan).items():
        free = room.free_mib(wanted.plan, path)
        if free is not None and (need or path == ROOT):
            disks.append(f"{path} {free / 1024:.0f} GiB free, {need / 1024:.0f} to come")
    if disks:
        yield "disk", ", ".join(disks)
    driver, cards = facts.get("driver"), facts.get("gpus") or []
    if driver or cards:
        yield "driver", f"{(driver or {}).get('version')}, {len(cards)} card{'' if len(cards) == 1 else 's'}"
    ports = [str(instance.port) for instance in wanted.plan.instances]
    if ports:
        yield "ports", f"{', '.join(ports)} free or ours"
    if facts.get("secure_boot") is not None:
        yield "secure boot", "on" if facts["secure_boot"] else "off"


def _span(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"


def _host(url: str) -> str:
    found = re.match(r"[a-z]+://(?:[^/@]*@)?([^/]+)", url)
    return found[1] if found else url


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
