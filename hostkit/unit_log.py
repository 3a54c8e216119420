"""What the service of an instance wrote to systemd's journal: its last lines, or all that come from now on."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import IO, Iterator, List, Optional

from hostkit import shell
from hostkit.errors import Failure
from hostkit.releases import unit_name

LINE = 4000  # letters of one line: an engine can print a whole request
SECONDS = 30


def command(instances: List[str], lines: int, *more: str) -> List[str]:
    units = [word for name in instances for word in ("--unit", unit_name(name))]
    return ["journalctl", "--no-pager", "--quiet", "--output=json", "--all", "--lines={}".format(lines), *more, *units]


def last(instances: List[str], lines: int) -> List[str]:
    """The last lines of these instances together, oldest first. Raises Failure when the journal cannot be read."""
    if lines < 1 or not instances:
        return []
    try:
        output = shell.run(command(instances, lines), timeout=SECONDS)
    except shell.Ended as ended:
        raise Failure("journalctl failed: {}".format(ended.tail), "look at `journalctl --verify` on the box")
    return [text for text in (line(item, len(instances) > 1) for item in output.splitlines()) if text is not None]


def started(instances: List[str], lines: int) -> "subprocess.Popen[bytes]":
    """journalctl, which prints the last lines and then each that comes. Raises Failure when there is none."""
    try:
        return subprocess.Popen(
            command(instances, lines, "--follow"),
            env={**os.environ, **shell.ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise Failure("journalctl is not installed", "install systemd's package that has it")


def followed(source: IO[bytes], several: bool) -> Iterator[str]:
    for raw in source:
        text = line(raw.decode("utf-8", "replace"), several)
        if text is not None:
            yield text


def line(entry: str, several: bool) -> Optional[str]:
    """`2026-11-29T17:40:00Z text` of one entry of the journal, with the instance between when there are several."""
    try:
        found = json.loads(entry)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    message = found.get("MESSAGE")
    if isinstance(message, list):  # systemd's way to write what is no UTF-8
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    try:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(found["__REALTIME_TIMESTAMP"]) / 1e6))
    except (KeyError, ValueError, TypeError):
        moment = "-"
    unit = str(found.get("UNIT") or found.get("_SYSTEMD_UNIT") or "")
    name = unit[len("gpufleet-") : -len(".service")] if unit.startswith("gpufleet-") else unit
    return "{} {}{}".format(moment, name + " " if several else "", str(message or "")[:LINE])
