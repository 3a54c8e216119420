"""`python -m lab`: boots, shows and ends the lab."""

from __future__ import annotations

import argparse
import os
import sys
import time

from lab import boxes, host, server, ssh, state
from lab.cache import locked
from lab.down import down
from lab.errors import LabError
from lab.paths import Settings, settings

USAGE_ERROR = 2
FAILED = 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m lab", description="Real boxes on this machine: see lab/README.md.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="fetch and build what boxes need, without starting any")
    up = commands.add_parser("up", help="start boxes lab-1 to lab-N; those that are up stay as they are")
    up.add_argument("count", type=int, metavar="N")
    of_box = "given for the i-th time, it is that of the i-th box"
    up.add_argument("--topology", action="append", default=[], metavar="NAME", help=of_box)
    ending = commands.add_parser("down", help="end everything and remove the boxes' disks; the cache stays")
    ending.add_argument("--all", action="store_true", help="remove the cache too")
    commands.add_parser("status", help="show the boxes")
    commands.add_parser("ask", help="one chat completion of each box").add_argument("prompt")
    shell = commands.add_parser("ssh", help="log in as root, or run a command")
    shell.add_argument("box")
    shell.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…")
    commands.add_parser("kill", help="cut a box's power; its disk stays").add_argument("box")
    commands.add_parser("start", help="start a box again, with its disk and address").add_argument("box")
    return top


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        host.require_root()
        where = settings()
    except LabError as error:
        return complain(error, USAGE_ERROR)
    try:
        return act(given, where)
    except LabError as error:
        return complain(error, FAILED)
    except KeyboardInterrupt:
        print("interrupted; `python -m lab down` removes what was started", file=sys.stderr)
        return 130


def act(given: argparse.Namespace, where: Settings) -> int:
    began = time.monotonic()
    match given.command:
        case "build":
            from lab.content import build  # needs numpy and more, which ending a lab must not

            build(where)
            print(f"built in {time.monotonic() - began:.0f} s: {where.cache}")
        case "up":
            from lab.up import up

            up(where, given.count, given.topology, say)
            print(f"up in {time.monotonic() - began:.0f} s; log in: python -m lab ssh lab-1")
        case "down":
            down(where, say, everything=given.all)
        case "ask":
            from lab.ask import ask

            for name, text in ask(where, given.prompt):
                print(f"{name}: {text}")
        case "status":
            status(where)
        case "ssh":
            box = state.load(where).box(given.box)
            command = ssh.command(where, box.address, given.arguments)
            os.execvp(command[0], command)  # noqa: S606
        case "kill":
            with locked(where.home, "this lab"):
                boxes.kill(where, given.box)
            print(f"{given.box}: power cut")
        case "start":
            with locked(where.home, "this lab"):
                box = boxes.start_again(where, given.box)
            print(f"{box.name}: up at {box.address} after {time.monotonic() - began:.1f} s")
    return 0


def status(where: Settings) -> None:
    lab = state.load(where)
    for box in lab.boxes:
        power = "up" if boxes.is_up(where, box.name) else "off"
        print(f"{box.name:8} {box.address:15} {power:4} {box.topology or 'cpu-only'}")
    print(f"files    {where.url('')} {'up' if server.running(where) else 'off'}")


def say(text: str) -> None:
    print(text, flush=True)


def complain(error: LabError, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
