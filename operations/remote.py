"""Running the hostkit on a box: over pyinfra's SSH connection, as root or by sudo, its events shown as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any

import gevent
from pyinfra.api.host import Host

from gpufleet.errors import BoxError
from gpufleet.kit import FOLDER, NEWEST, Kit, build
from gpufleet.terminal import one_line, plain
from operations import become, kit_scripts
from operations.remote_shell import AGAIN, Command, run
from operations.wanted import Wanted

# What boxes were asked when they were connected, and the greenlet that has the answer.
_begun: dict[str, tuple[str, gevent.Greenlet]] = {}
LOOK_SECONDS = 90  # the probe's own limits end it after a minute at most; more is a box that hangs


@cache
def kit() -> Kit:
    """The hostkit as this controller has it."""
    return build()


def probe(host: Host, wanted: Wanted) -> dict[str, Any]:
    """The facts of a box, in one command; one more to send the kit when it is new there.

    Raises BoxError when the box cannot be reached, gives no root, or has no python3.
    """
    spec = wanted.spec()
    answer = _first_command(host, spec)
    if answer.startswith("GPUFLEET:NOKIT"):
        _push_kit(host)
        return dict(call(host, "probe", spec, seconds=LOOK_SECONDS)["facts"])
    if answer.startswith("GPUFLEET:"):
        raise _explain(host, answer)
    return dict(_result(host, answer.splitlines(), host.log)["facts"])


def call(
    host: Host,
    verb: str,
    spec: Mapping[str, Any],
    payload: Iterable[bytes] | None = None,
    seconds: float | None = None,
    progress: Callable[[Mapping[str, Any]], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a verb of the kit as root and return its result; its log lines are shown as they come.

    + payload: bytes that follow the spec on standard input
    + seconds: how long it may be silent; None: for ever
    + progress: takes the verb's events `progress`
    + log: takes its log lines, in place of pyinfra's own output
    Raises BoxError with the cause and the remedy that the kit gives.
    """
    password = become.by_box.get(host.name)
    if payload is None:
        from operations import questions  # most runs have none

        script = kit_scripts.call(FOLDER, kit(), "questions")
        lines = questions.ask(host, verb, spec, seconds, lambda: Command(host, script, password))
    else:
        lines = run(host, kit_scripts.call(FOLDER, kit(), verb), chain(_line(spec), payload), password, seconds)
    return _result(host, lines, log or host.log, progress)


def begin(host: Host, wanted: Wanted) -> None:
    """Have the box begin what `probe` asks first, and go on; `probe` takes the answer."""
    script = _look(host, wanted.spec())
    _begun[host.name] = (script, gevent.spawn(_answer, host, script))


def _answer(host: Host, script: str) -> str | Exception:
    try:
        return _from_mark("\n".join(run(host, script, [], None, LOOK_SECONDS)))
    except Exception as error:  # which belongs to who asks for the answer
        return error


def _look(host: Host, spec: Mapping[str, Any]) -> str:
    """The script of the first command: who logs in as root need not find out how to become root."""
    make = kit_scripts.look_as_root if host.data.get("ssh_user") == "root" else kit_scripts.look
    return make(FOLDER, kit(), spec)


def _first_command(host: Host, spec: Mapping[str, Any]) -> str:
    script = _look(host, spec)
    asked, begun = _begun.pop(host.name, ("", None))
    answer = begun.get() if begun is not None and asked == script else _answer(host, script)
    if isinstance(answer, Exception):
        raise answer
    first, _, rest = answer.partition("\n")
    if first.startswith("GPUFLEET:AS:"):
        become.by_box[host.name] = "" if first != "GPUFLEET:AS:" else None
        return rest
    if first.startswith("GPUFLEET:SUDO:") and "password is required" in answer:
        password = become.password(host)
        if password is None:
            raise BoxError(
                host.name,
                "sudo asks for a password",
                f"run this in a terminal to be asked for it, or set {become.PASSWORD_VARIABLE}, "
                "or allow sudo without one",
            )
        become.by_box[host.name] = password
        root_script = kit_scripts.look_as_root(FOLDER, kit(), spec)
        answer = _from_mark("\n".join(run(host, root_script, [], password, LOOK_SECONDS)))
        return answer.removeprefix("GPUFLEET:AS:\n")
    return answer


def _from_mark(answer: str) -> str:
    """Without what a login shell's start-up files printed before."""
    return answer[max(answer.find("GPUFLEET:"), 0) :]


def _explain(host: Host, answer: str) -> BoxError:
    user = become.user(host)
    if answer.startswith("GPUFLEET:NOPYTHON"):
        return BoxError(host.name, "there is no python3", "install it (apt-get install python3), then deploy again")
    if answer.startswith("GPUFLEET:NOSUDO"):
        return BoxError(
            host.name,
            f"{user} is not root and there is no sudo",
            "log in as root (ssh_user), or install sudo on the box",
        )
    return become.no_sudo(host, answer.removeprefix("GPUFLEET:SUDO:"))


def _push_kit(host: Host) -> None:
    """Send the kit; older ones go."""
    script = kit_scripts.push(FOLDER, kit(), NEWEST)
    for line in run(host, script, [kit().data], become.by_box.get(host.name), LOOK_SECONDS):
        raise BoxError(host.name, f"the kit could not be put into {FOLDER}: {line}", AGAIN)


def _line(spec: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(spec).encode() + b"\n"]


def _result(
    host: Host,
    lines: Iterable[str],
    log: Callable[[str], None],
    progress: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    last: dict[str, Any] = {}
    stray: list[str] = []
    try:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "event" not in event:
                stray.append(line)
                continue
            if event.get("event") == "log":
                log(plain(event["message"]))
            elif event.get("event") == "progress":
                if progress:
                    progress(event)
            else:
                last = event
    except BoxError:
        if last.get("event") != "error":  # else the kit's own words say more than what stood on standard error
            raise
    if last.get("event") == "result":
        return last
    if last.get("event") == "error":
        raise BoxError(host.name, one_line(last["cause"]), one_line(last["remedy"]), bool(last.get("everywhere")))
    said = one_line(" ".join(stray)[-300:]) or "it was ended"
    raise BoxError(host.name, f"the kit gave no answer ({said})", AGAIN)
