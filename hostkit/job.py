"""Work that takes more than seconds runs in a transient unit of systemd: it goes on when the connection breaks.

`job` starts a verb with its spec as `gpufleet-job-<digest of both>`, or finds it running, and follows what it says
until it ends. The spec may hold secrets: it is in a file that only root reads, never in a command line, and the file is
gone as soon as the unit has it open.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from typing import Iterator, TextIO

from hostkit import events, files, shell, systemd
from hostkit.errors import Failure

JOBS = "/run/gpufleet/jobs"
VERBS = ("build", "runtime", "pull", "model", "activate", "rollback", "restart", "undo", "remove")
SECONDS = 0.05  # between two reads of what a job says
LOOK_SECONDS = 2.0  # between two looks whether it still runs, each of which is a process
END_SECONDS = 10
# Serving goes before building: of processor time, and when memory runs out.
PROPERTIES = ("Type=exec", "Nice=10", "OOMScoreAdjust=500", "KillMode=control-group", "TimeoutStopSec=30")
# What takes an instance down until it is done: it goes on when it can, and another unit goes on when it is killed.
ACTIVATING = ("activate", "rollback", "restart", "undo")
OF_ACTIVATIONS = ("Type=exec", "OOMScoreAdjust=-500", "KillMode=control-group", "TimeoutStopSec=30",
                  "OnFailure=gpufleet-resume.service")  # fmt: skip
# Nothing goes on with it: what it removes may be what would.
OF_REMOVALS = OF_ACTIVATIONS[:-1]
KILLED = "see `journalctl -u {}` and the kernel log (out of memory?), then deploy again: it goes on where it stopped"
REMOVING = "see `journalctl -u {}` and the kernel log, then call `gpufleet remove` again: it goes on where it stopped"
RESUMED = "the box finishes it, or puts the release before back: see `journalctl -u gpufleet-resume`, then deploy again"


def run(spec: dict) -> dict:
    """Run `verb` with `spec` as a job, or attach to the one that runs; returns what the verb returns.

    Its events pass through as they come, from its beginning also when attaching. Raises the Failure it ends with, or
    one that says how it was ended.
    """
    verb = spec["verb"]
    if verb not in VERBS:
        raise Failure("{!r} is no verb for a job".format(verb), "use one of: " + ", ".join(VERBS))
    text = json.dumps(spec["spec"], sort_keys=True) + "\n"
    digest = identity(verb, spec["spec"])
    os.makedirs(JOBS, mode=0o700, exist_ok=True)
    os.chmod(os.path.dirname(JOBS), 0o700)
    unit, said = unit_name(digest), os.path.join(JOBS, digest + ".events")
    with one_at_a_time():
        tidy(keep=digest)
        known = systemd.show(unit)
        if is_running(known):
            events.log("{} is running already: following it".format(verb))
        else:
            forget(unit, known)
            start(verb, text, digest)
        # Opened under the lock: whoever starts it anew later has a file of its own.
        handle = open(said, encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
    try:
        last = follow(handle, unit)
    finally:
        handle.close()
    state = {} if last else ending(unit)
    settle(digest)
    result = outcome(last, verb, unit, state)
    if verb == "remove" and not spec["spec"].get("instance"):
        shutil.rmtree(os.path.dirname(JOBS), ignore_errors=True)  # the last of gpufleet on this box
    return result


def identity(verb: str, spec: dict) -> str:
    """What a job is named by: the same work of another run of a deploy is the same job."""
    work = {key: value for key, value in spec.items() if key != "run"}
    return hashlib.sha256("{}\n{}\n".format(verb, json.dumps(work, sort_keys=True)).encode()).hexdigest()[:16]


def unit_name(digest: str) -> str:
    return "gpufleet-job-{}.service".format(digest)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two calls with the same spec start one job."""
    descriptor = os.open(os.path.join(JOBS, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:  # and not a call that waits: whatever else this process does goes on
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(SECONDS / 10)
        yield
    finally:
        os.close(descriptor)


def is_running(known: dict) -> bool:
    """By what hostkit.systemd.show tells of its unit."""
    return known["active"] in ("active", "activating", "deactivating") or known["job"]


def forget(unit: str, known: dict) -> None:
    """Only of one that failed does systemd remember anything."""
    if known["active"] == "failed":
        systemd.forget(unit)


def start(verb: str, text: str, digest: str) -> None:
    """Start the unit; its spec is its standard input, its events go to a file. Raises Failure."""
    unit = unit_name(digest)
    question, said = os.path.join(JOBS, digest + ".json"), os.path.join(JOBS, digest + ".events")
    files.with_suppressed_unlink(said)
    files.write(said, b"", 0o600)
    files.write(question, text.encode(), 0o600)
    properties = [
        *(OF_ACTIVATIONS if verb in ACTIVATING else OF_REMOVALS if verb == "remove" else PROPERTIES),
        "StandardInput=file:" + question,
        "StandardOutput=append:" + said,
    ]
    command = ["systemd-run", "--quiet", "--unit=" + unit, "--description=gpufleet {}".format(verb)]
    command += ["--property=" + item for item in properties]
    try:
        # It returns when the program runs, and so has its standard input open: then the file can go.
        shell.run([*command, "--", sys.executable, "-IS", os.path.abspath(sys.argv[0]), verb], timeout=90)
    except shell.Ended as ended:
        raise Failure("cannot start {}: {}".format(unit, ended.tail), "look at `systemctl status {}`".format(unit))
    finally:
        files.with_suppressed_unlink(question)


def follow(handle: TextIO, unit: str) -> dict:
    """Pass lines on until the last word, or the unit's end; returns the last word, {} when there was none."""
    rest, over, looked = "", False, time.monotonic()
    while True:
        rest += handle.read()
        *lines, rest = rest.split("\n")
        for line in lines:
            event = parsed(line)
            if event.get("event") in ("result", "error"):
                return event
            pass_on(line)
        if over:
            return {}
        if not lines and time.monotonic() - looked >= LOOK_SECONDS:
            # Whoever ends has written all before: what comes after this look is read once more.
            over, looked = not is_running(systemd.show(unit)), time.monotonic()
        elif not lines:
            time.sleep(SECONDS)


def settle(digest: str) -> None:
    """Take away what is left of a job when its process is gone, which is a moment after its last word."""
    unit, until, pause = unit_name(digest), time.monotonic() + END_SECONDS, SECONDS
    while time.monotonic() < until:
        time.sleep(pause)
        pause *= 2
        with one_at_a_time():
            known = systemd.show(unit)
            if not is_running(known):
                clean(digest, known)
                return


def parsed(line: str) -> dict:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def pass_on(line: str) -> None:
    """A line of the job, unchanged. When nobody reads any more, following ends; the job goes on."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)


def outcome(last: dict, verb: str, unit: str, state: dict) -> dict:
    """What the job returned. Raises the Failure it ended with, or says how it was ended."""
    if last.get("event") == "result":
        return {key: value for key, value in last.items() if key != "event"}
    if last.get("event") == "error":
        raise Failure(last["cause"], last["remedy"], bool(last.get("everywhere")))
    how = state.get("Result") or "gone"
    words = {
        "oom-kill": "the kernel ended it: the box ran out of memory",
        "signal": "it was ended by signal {}".format(state.get("ExecMainStatus") or "unknown"),
        "exit-code": "its program ended with status {} and no word".format(state.get("ExecMainStatus") or "unknown"),
        "gone": "its unit is gone: somebody stopped it, or the box went down",
        "success": "its unit was stopped",
    }
    remedy = RESUMED if verb in ACTIVATING else (REMOVING if verb == "remove" else KILLED).format(unit)
    raise Failure("{} did not end: {}".format(verb, words.get(how, how)), remedy)


def ending(unit: str) -> dict:
    """What systemd says of a unit that ended."""
    output = systemd.systemctl("show", "--property=Result,ExecMainStatus,LoadState", unit, allowed=True)
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return found if found.get("LoadState") != "not-found" else {}


def clean(digest: str, known: dict) -> None:
    forget(unit_name(digest), known)
    for suffix in (".json", ".events"):
        files.with_suppressed_unlink(os.path.join(JOBS, digest + suffix))


def tidy(keep: str) -> None:
    """Drop what jobs have left whose caller went away before they ended."""
    for name in os.listdir(JOBS):
        digest = name.split(".", 1)[0]
        if digest and digest != keep:
            known = systemd.show(unit_name(digest))
            if not is_running(known):
                clean(digest, known)
