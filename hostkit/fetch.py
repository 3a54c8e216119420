"""Downloads: resumed where they stopped, checked by size and sha256, in place only when right."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Iterator, NoReturn, Optional

from hostkit import files
from hostkit.errors import Failure

TRIES = 5  # in a row that bring less than GAIN
GAIN = 1 << 20  # bytes further than before: the line is bad, but it goes on
UNFETCHED = (OSError, http.client.HTTPException, ValueError)  # no answer, no HTTP, no address
TIMEOUT_SECONDS = 60  # without a byte
LATER = (408, 425, 429)  # of the 4xx, those that another try may mend

Progress = Callable[[int], None]  # bytes of the file that are here
Open = Callable[[urllib.request.Request], Any]  # an answer as urllib gives it


class Wrong(Failure):
    """What came has another hash than it should."""


def plain_open(request: urllib.request.Request) -> Any:
    """An answer by the proxies and authorities of the environment; another `Open` may know more of them."""
    return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)


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
    progress: Optional[Progress] = None,
    open_url: Open = plain_open,
    tries: int = TRIES,
) -> bool:
    """Fetch `url` to `path`; False when it is there already with the right sha256.

    A partial download stays beside it as `.part` and is continued by range. Raises Wrong on a wrong hash (the
    file is then dropped), files.Full when the disk is, Failure on a wrong size, when it cannot be written, and after
    `tries` in a row that bring nothing more.
    """
    if files.sha256(path) == sha256:
        return False
    partial = path + ".part"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    earlier = os.path.exists(partial)
    fetch_part(url, partial, size, progress, open_url, tries)
    found = files.sha256(partial)
    if found != sha256 and earlier:  # what an earlier run left may be damaged: after a power cut, or of another file
        files.with_suppressed_unlink(partial)
        fetch_part(url, partial, size, progress, open_url, tries)
        found = files.sha256(partial)
    if found != sha256:
        files.with_suppressed_unlink(partial)
        raise Wrong(
            "{} has sha256 {}, not the pinned {}".format(url, found, sha256),
            "the source changed or the download was damaged: try again; if it stays, check what was pinned",
        )
    with open(partial, "rb") as handle:
        os.fsync(handle.fileno())
    os.replace(partial, path)
    files.sync_directory(os.path.dirname(path))
    return True


def fetch_part(
    url: str, partial: str, size: Optional[int], progress: Optional[Progress], open_url: Open, tries: int
) -> None:
    """All bytes of `url` into `partial`, whatever they are. Raises Failure."""
    reason = "no answer"
    furthest, failed = length(partial), 0
    while failed < tries:
        if failed:
            time.sleep(min(2 ** (failed - 1), 10))
        try:
            download(url, partial, size, progress, open_url)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing is left to send
                if said(error.headers, r"bytes \*/(\d+)") == length(partial):
                    return
                files.with_suppressed_unlink(partial)  # the part is longer than the file: begin again
            elif 400 <= error.code < 500 and error.code not in LATER:
                raise Failure("{} answers {}".format(url, error.code), "check the address and the mirrors setting")
            reason = str(error)
        except UNFETCHED as error:
            reason = str(error) or repr(error)
        have = length(partial)
        failed = 0 if have >= furthest + GAIN else failed + 1
        furthest = max(furthest, have)
    raise Failure(
        "cannot fetch {}: {}".format(url, reason),
        "check the network and the mirrors setting; the part so far is kept, and the next run goes on with it",
    )


def download(
    url: str, partial: str, size: Optional[int], progress: Optional[Progress], open_url: Open = plain_open
) -> None:
    """One try: what `partial` lacks, or everything where the server knows no ranges."""
    have = length(partial)
    if size is not None and have == size:
        return
    request = urllib.request.Request(url, headers={"Range": "bytes={}-".format(have)} if have else {})
    with open_url(request) as answer:
        goes_on = bool(have) and answer.status == 206
        if goes_on and said(answer.headers, r"bytes (\d+)-") not in (None, have):
            files.with_suppressed_unlink(partial)
            raise OSError("the server sends another range than it was asked for")
        done = have if goes_on else 0
        rest = said(answer.headers, r"(\d+)$", "Content-Length")
        whole = None if rest is None else done + rest
        if None not in (size, whole) and whole != size:
            wrong_size(url, str(whole), size)
        for block in written(partial, "ab" if goes_on else "wb", answer):
            done += block
            if size is not None and done > size:
                files.with_suppressed_unlink(partial)
                wrong_size(url, "more", size)
            if progress:
                progress(done)
    expected = size if size is not None else whole
    if expected is not None and done < expected:
        raise OSError("the connection ended after {} of {} bytes".format(done, expected))


def written(partial: str, mode: str, answer: Any) -> Iterator[int]:
    """Append what an answer holds; yields the bytes of each block. Raises Failure when the disk takes no more."""
    try:
        handle = open(partial, mode)  # noqa: SIM115 - closed below, where its own errors are told from the network's
    except OSError as error:
        unwritable(partial, error)
    try:
        for block in iter(lambda: answer.read1(1 << 20), b""):
            try:
                handle.write(block)
                handle.flush()
            except OSError as error:
                unwritable(partial, error)
            yield len(block)
    finally:
        # On a full disk closing tries the last block again: its error would hide the one that says so. What is
        # lacking then is seen by the length and the hash.
        with contextlib.suppress(OSError):
            handle.close()


def unwritable(partial: str, error: OSError) -> NoReturn:
    kind = files.Full if error.errno in files.NO_ROOM else Failure
    raise kind(
        "cannot write {}: {}".format(partial, error.strerror or error),
        "free space there or mend that; the part so far is kept, and the next run goes on with it",
    )


def wrong_size(url: str, found: str, size: Optional[int]) -> NoReturn:
    raise Failure(
        "{} has {} bytes, not the pinned {}".format(url, found, size),
        "the source changed or the address is of something else: check it and what was pinned",
    )


def length(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def said(headers: Any, pattern: str, name: str = "Content-Range") -> Optional[int]:
    """The number a header gives; None when it gives none."""
    found = re.match(pattern, (headers.get(name) or "").strip())
    return int(found.group(1)) if found else None
