"""A process of its own that gets bytes of one file from a models' hub, by the hub's own client, and hashes the file.

`python -m gpufleet.hub_child`: a JSON object on stdin, JSON lines on stdout. It is no thread of the deploy, because
pyinfra's process is gevent's, because the client reads its settings from the environment when it is imported, and
because what hangs can be ended only by ending its process. Tokens come by the environment or the client's own file.

What it is told: {"path": of the file that is written, "size", "sha256", "ranges": [[offset, length] …] of it to get
before it is hashed, "hub": {"endpoint", "repo", "commit", "path"}, "timeout": seconds, "parent": its process id,
"connections", "stretch": so many bytes by one request where there are several, "left": whether what lacks is kept}.
What it says: {"begun": true} when it gets on, {"at": bytes of the ranges that are here}, {"read": bytes hashed}, then
{"done": {"sha256", "size", "pieces"}} or {"error": {"kind", "said", "status", "retry_after"}}; kinds: see `Failed`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

from gpufleet.wheelhouse import left, pool
from gpufleet.wheelhouse.pieces import sums

SAY_SECONDS = 0.2
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Failed(Exception):
    """+ kind: `later` (another try may mend it), `denied`, `absent`, `other` (the hub has something else), `offline`,
    `no hub`, `full`, `disk`, `client`
    """

    def __init__(self, kind: str, said: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.kind, self.status, self.retry_after = kind, status, retry_after


def main() -> None:
    told = json.load(sys.stdin)
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != told["parent"]:  # it ended before it could be asked for
        sys.exit(1)
    say({"begun": True})
    try:
        done = work(told)
    except Failed as error:
        failed = {"kind": error.kind, "said": clean(str(error)), "status": error.status}
        say({"error": {**failed, "retry_after": error.retry_after}})
    except OSError as error:
        kind = "full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
        say({"error": {"kind": kind, "said": clean(f"{told['path']}: {error.strerror or error}"), "status": None}})
    else:
        say({"done": done})


def say(line: dict[str, Any]) -> None:
    """Where nobody reads any more, this is the end: who started it was killed."""
    try:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(1)


def clean(text: str) -> str:
    """One line without what may be a token or a login."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := os.environ.get(name, "").strip():
            text = text.replace(token, "***")
    text = re.sub(r"//[^/\s@]*@", "//", re.sub(r"\bhf_[A-Za-z0-9]{8,}", "***", text))
    return " ".join(re.sub(r"\?\S*", "", text).split())[:500]  # a storage's address is signed by what follows its `?`


def now_and_then(key: str) -> Callable[[int, bool], None]:
    """Says a number, but not too often, unless it has to be said: this process may be killed before the next one."""
    said = 0.0

    def tell(number: int, surely: bool) -> None:
        nonlocal said
        if surely or time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            say({key: number})

    return tell


def work(told: dict[str, Any]) -> dict[str, Any]:
    """Raises Failed, OSError."""
    path = Path(told["path"])
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT if told["ranges"] else os.O_RDONLY, 0o644)
    try:
        if told["ranges"]:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # one that lost its parent may not have ended yet
            fetch(told, descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    tell = now_and_then("read")
    found = sums(path, lambda number: tell(number, False))
    return {"sha256": found.sha256, "size": found.size, "pieces": found.pieces}


def fetch(told: dict[str, Any], descriptor: int) -> None:
    """All ranges into the file, over several connections. Raises Failed, OSError."""
    with hub_errors():
        client = Client(told)
    say({"begun": True})
    several = told["connections"] > 1
    stretches = left.cut(told["ranges"], told["stretch"]) if several else told["ranges"]
    kept = (Path(told["path"]), told["size"]) if told["left"] else None
    coming = left.Coming(stretches, descriptor, now_and_then("at"), kept)

    waiting = deque(stretches)

    def connection(number: int, stop: pool.Stop) -> Failed | None:
        """One stretch after the other; what ended it early. Others go on: a mirror may allow fewer connections."""
        try:
            while waiting and not stop.is_set():
                offset, length = waiting.popleft()
                stretch(client, offset, length, descriptor, coming, stop)
        except IndexError:  # another one was faster
            pass
        except Failed as error:
            if error.kind != "later":
                raise
            return error
        return None

    try:
        ended = pool.each(connection, range(told["connections"]), told["connections"])
    finally:  # whether another try is worth it depends on how far this one came
        say({"at": coming.end()})
    for error in filter(None, ended):
        raise error


def stretch(client: Client, offset: int, length: int, descriptor: int, coming: left.Coming, stop: pool.Stop) -> None:
    """Over one connection into the file. Raises Failed, OSError, pool.Stopped."""
    at = offset
    with contextlib.closing(client.get(offset, offset + length)) as blocks:
        for block in blocks:
            if stop.is_set():
                raise pool.Stopped
            while block:
                written = os.pwrite(descriptor, block, at)
                at, block = at + written, block[written:]
                coming.came(offset, written)


class Client:
    """huggingface_hub, for one file. Raises what that raises, Failed."""

    def __init__(self, told: dict[str, Any]) -> None:
        try:
            from huggingface_hub import get_hf_file_metadata, get_session, hf_hub_url
            from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]
        except ImportError as error:
            raise Failed("client", f"the hub's client is not installed: {error}") from error
        self.session, self.check, self.told = get_session(), hf_raise_for_status, told
        hub = told["hub"]
        self.url = hf_hub_url(hub["repo"], hub["path"], revision=hub["commit"], endpoint=hub["endpoint"])
        found = get_hf_file_metadata(self.url, timeout=told["timeout"], endpoint=hub["endpoint"])
        if found.commit_hash is None:
            raise Failed("no hub", f"{hub['endpoint']} names no commit for {self.url}, so it is no hub")
        if found.commit_hash != hub["commit"]:
            raise Failed("other", f"{hub['endpoint']} gives commit {found.commit_hash} for {hub['commit']}")
        if found.size not in (None, told["size"]):
            raise Failed("other", f"{hub['endpoint']} says it has {found.size} bytes, the model's page {told['size']}")
        # A large file's etag is its sha256; that of a file in the repository itself is git's hash.
        if re.fullmatch(r"[0-9a-f]{64}", found.etag or "") and found.etag != told["sha256"]:
            raise Failed(
                "other", f"{hub['endpoint']} says its sha256 is {found.etag}, the model's page {told['sha256']}"
            )
        self.headers = {**build_hf_headers(), "Accept-Encoding": "identity"}

    def get(self, start: int, end: int) -> Generator[bytes]:
        """The bytes from `start` on and before `end`, through the redirect anew: a storage's address lasts an hour.
        The session gives a token to no other host than the one it is for."""
        whole = (start, end) == (0, self.told["size"])
        headers = self.headers if whole else {**self.headers, "Range": f"bytes={start}-{end - 1}"}
        with (
            hub_errors(),
            self.session.stream("GET", self.url, headers=headers, timeout=self.told["timeout"]) as answer,
        ):
            if answer.status_code >= 400:
                self.check(answer)
            at = start if answer.status_code == 206 else 0  # who knows no ranges sends it all
            sent = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range") or "")
            if answer.status_code == 206 and sent and int(sent[1]) != start:
                raise Failed("later", f"{self.url}: another range came than was asked for")
            for block in answer.iter_bytes():
                wanted = block[max(0, start - at) : max(0, end - at)]
                at += len(block)
                if wanted:
                    yield wanted
                if at >= end:
                    return
        raise Failed("later", f"{self.url}: the connection ended after {at} of {end} bytes")


@contextlib.contextmanager
def hub_errors() -> Iterator[None]:
    """Says what the client raises in our kinds."""
    try:
        yield
    except (Failed, OSError) as error:
        # Some of the client's errors are OSErrors as well, and so are a socket's; a disk's have a number of their own.
        if isinstance(error, Failed) or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        refused(error)
    except Exception as error:
        refused(error)


def refused(error: Exception) -> NoReturn:
    answer = getattr(error, "response", None)
    status = getattr(answer, "status_code", None)
    name, said = type(error).__name__, str(error) or repr(error)
    if name == "OfflineModeIsEnabled":
        raise Failed("offline", "HF_HUB_OFFLINE is set") from error
    if name == "RevisionNotFoundError":
        raise Failed("absent", "the repository has no such commit", status) from error
    if name in ("EntryNotFoundError", "RemoteEntryNotFoundError"):
        raise Failed("absent", "the commit has no such file", status) from error
    if status in (401, 403) or name in ("GatedRepoError", "RepositoryNotFoundError"):
        raise Failed(
            "denied", f"it answers {status}: the repository is private, gated, or not there", status
        ) from error
    if status is None:
        raise Failed("later", f"{name}: {said}") from error
    if status == 416:
        raise Failed("other", "it has less bytes than the model's page says", status) from error
    kind = "later" if status in (408, 425, 429) or status >= 500 else "absent"
    raise Failed(kind, f"it answers {status}", status, _seconds(answer)) from error


def _seconds(answer: Any) -> float | None:
    """What Retry-After says; a date in it is left."""
    found = re.fullmatch(r"\d{1,6}", (answer.headers.get("Retry-After") or "").strip())
    return float(found[0]) if found else None


if __name__ == "__main__":
    main()
