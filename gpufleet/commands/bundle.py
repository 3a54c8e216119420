"""`gpufleet bundle`: one file about one box, for a report of a problem, without the names of anybody."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from gpufleet import __version__, bundling, bundling_file, bundling_names, planning, target
from gpufleet.anonymity_text import Disguise
from gpufleet.commands import reach
from gpufleet.commands.folder import configuration
from gpufleet.errors import BOX_FAILED, DONE, ConfigError
from gpufleet.fleet import Fleet
from gpufleet.hardware import differences
from gpufleet.plan import plan_box

EVENTS = 500  # of the journal


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("box", metavar="BOX")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: gpufleet-bundle-TIME.tar.gz here."
)
@click.option(
    "-n", "--lines", type=click.IntRange(0, 100_000), default=1000, show_default=True, help="Of each instance's log."
)
def bundle(inventory: Path, box: str, output: Path | None, lines: int) -> None:
    """Put what is known of BOX into one file: for a report of a problem, or to show that a recipe runs.

    Facts, plan, findings, versions, gates and speeds, journal, logs, the report of the last run. Names of boxes, hosts
    and people, addresses, keys, tokens, serials and UUIDs have stand-ins or are hidden. Nothing is sent anywhere: look
    it through before you pass it on.

    Exit codes: 0 done; 1 the box could not be reached, and the file has what was known before; 2 the call or the
    configuration is wrong; 130 interrupted.
    """
    moment = time.gmtime()
    path = (output or Path(time.strftime("gpufleet-bundle-%Y%m%dT%H%M%SZ.tar.gz", moment))).absolute()
    with configuration():
        fleet = reach.fleet_of(inventory)
        target.one_box(fleet, box)
        if path.exists():
            raise ConfigError([f"-o {path} is there already: give another name"])
        boxes = reach.connect(fleet, [box], packages=True, interrupted="")
        sources = gathered(fleet, boxes, box, lines, moment)
        disguise = Disguise(bundling.vocabulary())
        bundling_names.acquaint(
            disguise,
            fleet,
            box,
            sources.facts,
            sources.evidence,
            sources.planned.plan if sources.planned else None,
            controller(),
        )
        texts = bundling.disguised(bundling.raw(sources), sources.missing, disguise)
        left = {name: found for name, text in texts.items() if (found := disguise.left(text))}
        if left:
            reach.say(f"{', '.join(left)}: names could not be taken out, so nothing was written; report this", err=True)
            sys.exit(BOX_FAILED)
        bundling_file.write(path, bundling_file.packed(texts))
    for name, text in texts.items():
        click.echo(f"    {len(text.encode()):>9,} bytes  {name}")
    for line in sources.missing:
        reach.say(f"not in it: {line}", err=True)
    reach.say(
        f"{path}: nothing was sent anywhere. Look it through before you pass it on: tar -xzf it, README.txt first"
    )
    sys.exit(BOX_FAILED if boxes.failures else DONE)


def gathered(fleet: Fleet, boxes: Any, box: str, lines: int, moment: time.struct_time) -> bundling.Sources:
    """All that is known of a box: from it when it answers, else from what was kept."""
    missing: list[str] = []
    facts = boxes.facts.get(box)
    status, evidence = None, None
    if facts:
        status = _status(fleet, boxes, box, facts)
        asked = {"instances": sorted(facts.get("instances") or {}), "events": EVENTS, "log": lines}
        evidence = boxes.call("evidence", {box: asked}).get(box)
        missing += (evidence or {}).get("errors") or []
    missing += [str(error) for error in boxes.failures.values()]
    known = facts or fleet.facts.get(box)
    if known is None:
        missing.append("facts: the box was never looked at")
    planned, why = plan_of(fleet, box, known) if known else (None, "")
    missing += [f"plan: {why}"] if why else []
    report = last_report(fleet.reports_folder, box)
    missing += [] if report else ["report: there is none of a run with this box"]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    return bundling.Sources(box, at, versions(), known, facts is not None, planned, status, evidence, report, missing)


def _status(fleet: Fleet, boxes: Any, box: str, facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    from gpufleet.commands.status import one

    serving = boxes.call("health", {box: {}}).get(box)
    return one(fleet, box, facts, serving["instances"]) if serving else None


def plan_of(fleet: Fleet, box: str, facts: Mapping[str, Any]) -> tuple[planning.Planned | None, str]:
    """The plan of a box with what the rules say, or why there is none."""
    changed = differences(fleet.facts[box], facts) if box in fleet.facts else []
    try:
        plan = plan_box(fleet.boxes[box], facts, fleet.layers, fleet.stacks, fleet.models, {}, hardware_changes=changed)
        return planning.checked_plan(plan), ""
    except ConfigError as error:
        return None, "; ".join(error.problems)


def last_report(folder: Path, box: str) -> dict[str, Any] | None:
    """The newest report of a run that had this box; one that cannot be read is passed over."""
    for path in sorted(folder.glob("2*.json"), reverse=True):
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict) and box in (found.get("boxes") or {}):
                return found
    return None


def versions() -> dict[str, Any]:
    """What runs on this controller."""
    from gpufleet.kit import build

    packages = {}
    for name in ("pyinfra", "paramiko", "pydantic", "jinja2", "nvidia-ml-py"):
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    system = f"{platform.system()} {platform.machine()}"
    return {
        "gpufleet": __version__,
        "kit": build().name,
        "python": platform.python_version(),
        "system": system,
        "packages": packages,
    }


def controller() -> bundling_names.Controller:
    """Who calls, by all the names that this machine knows."""
    from operations import become

    users = {os.environ.get(name) for name in ("SUDO_USER", "USER", "LOGNAME")}
    with suppress(RuntimeError):  # a user without a home
        users.add(Path.home().name)
    with suppress(KeyError, OSError):
        users.add(getpass.getuser())
    hosts = {socket.gethostname(), platform.node()}
    secrets = {*become.passwords(), os.environ.get(become.PASSWORD_VARIABLE)}
    return bundling_names.Controller(
        tuple(sorted(user for user in users if user)),
        tuple(sorted(host for host in hosts if host)),
        tuple(sorted(secret for secret in secrets if secret)),
    )
