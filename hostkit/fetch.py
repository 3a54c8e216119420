"""Downloads: resumed where they stopped, checked by size and sha256, in place only when right."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Callable, Optional

from hostkit import files
from hostkit.errors import Failure

TRIES = 5
UNFETCHED = (OSError, http.client.HTTPException, ValueError)  # no answer, no HTTP, no address
TIMEOUT_SECONDS = 60


class Wrong(Failure):
    """What came has another hash than it should."""


def fetch_bytes(url: str, limit: int) -> bytes:
    """A small file's content. Raises Failure when it cannot be had or is larger than `limit` bytes."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            data = bytes(answer.read(limit + 1))
    except UNFETCHED as error:
        raise Failure("cannot fetch {}: {}".format(url, error), "check the box's network and the mirrors setting")
    if len(data) > limit:
        raise Failure("{} is larger than {} bytes".format(url, limit), "check the mirrors setting")
    return data


def fetch_file(
    url: str,
    path: str,
    sha256: str,
    size: Optional[int] = None,
    progress: Optional[Callable[[int], None]] = None,
    tries: int = TRIES,
    timeout: float = TIMEOUT_SECONDS,
) -> bool:
    """Fetch `url` to `path`; False when it is there already with the right sha256.

    A partial download stays beside it as `.part` and is continued by range.
    + progress: called with the bytes that are there so far
    + timeout: seconds without an answer, or without a byte
    Raises Wrong when the hash is (the file is then dropped), files.Full when the disk is, Failure when the file is not
    whole after all tries.
    """
    if files.sha256(path) == sha256:
        return False
    partial = path + ".part"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    reason = "no answer"
    for attempt in range(tries):
        try:
            with files.room(partial, size):
                download(url, partial, size, progress, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the part is longer than the file: begin again
                files.with_suppressed_unlink(partial)
            elif 400 <= error.code < 500:
                raise Failure("{} answers {}".format(url, error.code), "check the model's or mirror's address")
            reason = str(error)
        except UNFETCHED as error:
            reason = str(error) or repr(error)
        if attempt + 1 < tries:
            time.sleep(min(2**attempt, 10))
    else:
        raise Failure("cannot fetch {}: {}".format(url, reason), "check the box's network; the part so far is kept")
    found = files.sha256(partial)
    if found != sha256:
        files.with_suppressed_unlink(partial)
        raise Wrong(
            "{} has sha256 {}, not the pinned {}".format(url, found, sha256),
            "the source changed or the download was damaged: deploy again; if it stays, check the catalogue entry",
        )
    os.replace(partial, path)
    files.sync_directory(os.path.dirname(path))
    return True


def download(
    url: str, partial: str, size: Optional[int], progress: Optional[Callable[[int], None]], timeout: float
) -> None:
    have = os.path.getsize(partial) if os.path.exists(partial) else 0
    if size is not None and have == size:
        return
    request = urllib.request.Request(url, headers={"Range": "bytes={}-".format(have)} if have else {})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        mode = "ab" if have and answer.status == 206 else "wb"
        with open(partial, mode) as handle:
            done = have if mode == "ab" else 0
            for block in iter(lambda: answer.read(1 << 20), b""):
                handle.write(block)
                done += len(block)
                if progress:
                    progress(done)
            handle.flush()
            os.fsync(handle.fileno())  # it gets its name next, which must not survive a power cut alone
    if size is not None and done < size:
        raise OSError("the connection ended after {} of {} bytes".format(done, size))
