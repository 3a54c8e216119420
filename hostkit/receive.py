"""A file from the controller: its bytes follow the spec on standard input, and it is in place only when right."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile

from hostkit import files
from hostkit.errors import Failure

CACHE = os.path.join(files.ROOT, "cache", "wheels")


def cached(name: str, sha256: str) -> str:
    """Where a file of this name and hash lies on the box; names are checked by the one who uses them."""
    return os.path.join(CACHE, sha256, os.path.basename(name))


def run(spec: dict) -> dict:
    """Store the `size` bytes that follow as `name`, when their hash is `sha256`. Raises Failure otherwise."""
    path = cached(spec["name"], spec["sha256"])
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".part-")
    digest = hashlib.sha256()
    left = int(spec["size"])
    try:
        with os.fdopen(descriptor, "wb") as handle:
            while left:
                block = sys.stdin.buffer.read(min(left, 1 << 20))
                if not block:
                    break
                digest.update(block)
                handle.write(block)
                left -= len(block)
            handle.flush()
            os.fchmod(handle.fileno(), 0o644)
            os.fsync(handle.fileno())
        if left or digest.hexdigest() != spec["sha256"]:
            raise Failure(
                "{} arrived damaged or only in part".format(spec["name"]), "check the connection and deploy again"
            )
        os.replace(temporary, path)
    except BaseException:
        files.with_suppressed_unlink(temporary)
        raise
    return {"path": path}
