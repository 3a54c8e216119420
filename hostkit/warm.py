"""Reads into the page cache what a start will read, so that the instance is down for as short as can be."""

from __future__ import annotations

import os
import re
import time
from typing import Iterator

from hostkit import events
from hostkit.roots import Roots

SPARE_SHARE, SPARE_BYTES = 0.05, 2 << 30  # of the memory, left to whoever needs some meanwhile
BLOCK = 8 << 20
TOLD_SECONDS = 10
GIB = 2.0**30
_NO_ENGINES = (".original",)  # what a replaced MTP head has left beside it (hostkit.head)
_SHARED_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")


def run(folders: list, runtime: str) -> list:
    """Read the files of these folders, of the runtime only its shared objects; no more than memory is available.

    Returns warnings: that not all of it has room. A file that cannot be read is the engine's to complain of.
    """
    found = [item for folder in folders for item in of_folder(folder, folder == runtime)]
    total, limit = sum(size for _, size in found), room()
    took = read(found, min(total, limit))
    if took >= BLOCK:
        events.log("{:.1f} GiB are in the page cache".format(took / GIB))
    if total > limit:
        return [
            "{:.1f} of {:.1f} GiB were read into the page cache before the stop: more memory is not free".format(
                took / GIB, total / GIB
            )
        ]
    return []


def of_folder(folder: str, shared_objects: bool) -> "Iterator[tuple[str, int]]":
    """(path, bytes) of the files below, in an order that stays."""
    for directory, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            if (
                name.startswith(".")
                or name.endswith(_NO_ENGINES)
                or (shared_objects and not _SHARED_OBJECT.search(name))
            ):
                continue
            try:
                yield path, os.path.getsize(path)
            except OSError:
                continue


def room() -> int:
    """Bytes that may be read: what the kernel calls available, which pages of files count to already."""
    text = Roots().text_or_none("/proc/meminfo") or ""
    known = {key: int(value) << 10 for key, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    spare = max(SPARE_BYTES, int(known.get("MemTotal", 0) * SPARE_SHARE))
    return max(0, known.get("MemAvailable", 0) - spare)


def read(found: list, limit: int) -> int:
    """Read up to `limit` bytes, with a line of progress now and then; returns the bytes read."""
    buffer, took, told = memoryview(bytearray(BLOCK)), 0, time.monotonic()
    for path, _ in found:
        try:
            with open(path, "rb", buffering=0) as handle:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                while took < limit:
                    count = handle.readinto(buffer[: min(BLOCK, limit - took)])
                    if not count:
                        break
                    took += count
                    if time.monotonic() - told > TOLD_SECONDS:
                        told = time.monotonic()
                        events.log("reading into the page cache: {:.1f} of {:.1f} GiB".format(took / GIB, limit / GIB))
        except OSError:
            continue
    return took
