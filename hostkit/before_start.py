"""Before a service starts (ExecStartPre, as its own user): room on its cards, and nothing stale in its way."""

from __future__ import annotations

import os
import re
import shutil
import time

from hostkit import events, start_note, vram
from hostkit.errors import Failure
from hostkit.roots import Roots

SHM = "/dev/shm"
INSTANCES = "/opt/gpufleet/instances"
OFFLOADED = re.compile(r"vllm_offload_.*\.mmap")
LOOK_SECONDS, TELL_SECONDS = 1.0, 15.0


def run(spec: dict) -> dict:
    """Get an instance ready to start; raises Failure when its cards do not get free in time.

    spec, which is a file of its release (gpufleet/starting.py):
    + gpus: [{"uuid", "need_mib"}]; wait_seconds: for how long free memory is waited for
    + state, cache: its own folders
    """
    note = start_note.read(spec["state"])
    release = current(spec["instance"])
    # Its failure is dealt with here; until this has ended, nothing of this start can be a failed one.
    wiped = see_to_caches(spec["cache"], note, release)
    start_note.write(spec["state"], {"began": None, "failed": None, "wiped": wiped, "release": release})
    removed = free_shared_memory()
    if removed:
        events.log("removed what an ended engine left in {}: {}".format(SHM, ", ".join(removed)))
    wait_for_memory(spec["gpus"], spec["wait_seconds"])
    start_note.write(spec["state"], {"began": time.monotonic(), "failed": None, "wiped": wiped, "release": release})
    return {"removed": removed}


def current(instance: str) -> str:
    """The release that starts; empty when there is no link to one."""
    try:
        return os.path.basename(os.readlink(os.path.join(INSTANCES, instance, "current")))
    except OSError:
        return ""


def see_to_caches(cache: str, note: dict, release: str) -> bool:
    """Take the compile caches away after a failed start: a damaged one fails each start in the same way.

    Once only, until a start is good; and only by the release that failed: one that is put back in its place gets back
    what was taken away, or it would compile for minutes while nothing serves. Returns whether they are away.
    """
    aside = cache.rstrip("/") + ".failed"
    try:
        if note["release"] != release:
            if note["wiped"] and os.path.isdir(aside):
                shutil.rmtree(cache, ignore_errors=True)
                os.rename(aside, cache)
                events.log("{} is back, of before the release that failed".format(cache))
            return False
        if note["failed"] and not note["wiped"]:
            shutil.rmtree(aside, ignore_errors=True)
            if os.path.isdir(cache):
                os.rename(cache, aside)
                said = "the last start failed ({}): compiling anew, without what lies in {}"
                events.log(said.format(note["failed"].get("result"), cache))
            return True
        if not note["wiped"]:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        events.log("{} could not be taken away or put back: {}".format(cache, error.strerror))
    return bool(note["wiped"])


def wait_for_memory(gpus: list, seconds: float) -> None:
    """Wait until each card has the free memory that is needed of it. Raises Failure after `seconds`."""
    if not gpus:
        return
    began, told = time.monotonic(), -TELL_SECONDS
    while True:
        try:
            lines = vram.short(gpus)
        except vram.Unknown as unknown:
            # The engine will say more of it than can be said here.
            events.log("free memory of the cards is not known: {}".format(unknown))
            return
        now = time.monotonic()
        if not lines:
            return
        if now - began >= seconds:
            raise Failure(
                "; ".join(lines),
                "end what holds the memory; a process that cannot be ended needs a reboot",
            )
        if now - told >= TELL_SECONDS:
            events.log("waiting for free memory: " + "; ".join(lines))
            told = now
        time.sleep(LOOK_SECONDS)


def free_shared_memory(shm: str = SHM, proc: str = "/proc") -> list:
    """Remove files of offloaded KV caches that no process of ours has any more; returns their names.

    An engine that was killed leaves them. They fill /dev/shm, and then pinning memory fails with `invalid argument`.
    """
    found = [os.path.join(shm, name) for name in sorted(os.listdir(shm)) if OFFLOADED.fullmatch(name)]
    found = [path for path in found if is_ours(path)]
    if not found:
        return []
    used = mapped(proc)
    removed = []
    for path in found:
        if path not in used:
            try:
                os.unlink(path)
                removed.append(os.path.basename(path))
            except OSError:
                continue
    return removed


def is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.getuid()
    except OSError:  # gone since it was listed
        return False


def mapped(proc: str = "/proc") -> set:
    """Such files as are mapped or open in some process that may be looked into, which those of our own user may."""
    used: set = set()
    for pid in filter(str.isdigit, os.listdir(proc)):
        folder = os.path.join(proc, pid)
        maps = Roots().text_or_none(folder + "/maps") or ""
        used.update(re.findall(r"(/\S*vllm_offload_\S*\.mmap)$", maps, re.MULTILINE))
        try:
            used.update(os.readlink(os.path.join(folder, "fd", number)) for number in os.listdir(folder + "/fd"))
        except OSError:
            continue
    return used
