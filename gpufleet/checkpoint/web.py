"""A checkpoint below an http address: the files that models usually have, and those that the index names."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpufleet.checkpoint import hashing, wanted
from gpufleet.errors import ConfigError
from gpufleet.models import File, Source
from gpufleet.schema import read
from gpufleet.wheelhouse.items import FetchError
from gpufleet.wheelhouse.web import authorities
from hostkit.fetch import TIMEOUT_SECONDS
from hostkit.safetensors import brief

CONNECTIONS = 4
TRIES = 4  # of a request that fails on the way, or of a server that is busy
BUSY = (408, 425, 429, 500, 502, 503, 504)
SUMS = "SHA256SUMS"
SHA256 = re.compile(r"[0-9a-f]{64}")


class _Request(urllib.request.Request):
    """A request that collects what redirects on its way tell of the file."""

    linked: dict[str, str]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A hub tells size and sha256 of a large file where it redirects to its store; HEAD stays HEAD."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if super().redirect_request(req, fp, code, msg, headers, newurl) is None:
            return None
        if not newurl.lower().startswith(("http://", "https://")):  # ftp is let through by the library
            raise urllib.error.HTTPError(req.full_url, code, f"leads to {brief(newurl)}, no http address", headers, fp)
        for name in ("X-Linked-Etag", "X-Linked-Size"):
            if headers.get(name):
                req.linked[name] = headers[name]
        again = _Request(newurl.replace(" ", "%20"), headers=req.headers, unverifiable=True, method=req.get_method())
        again.linked = req.linked
        return again


class Web:
    """Files below an address. The server has to know ranges, or the headers of large files cannot be read."""

    def __init__(self, address: str, extra: tuple[str, ...] = (), wait: float = 1.0) -> None:
        """
        + extra: further names to ask for
        + wait: seconds before the second try; twice as many before each further one
        """
        self.where = address.rstrip("/")
        self._extra, self._wait = extra, wait
        context = authorities() or ssl.create_default_context()
        self._director = urllib.request.build_opener(_Redirects(), urllib.request.HTTPSHandler(context=context))

    @cached_property
    def _heads(self) -> dict[str, Any]:
        """Headers of the answer for each file that there is."""
        names = [*wanted.USUAL, *self._extra]
        found = self._ask_for(names)
        shards = [wanted.ONE]
        if wanted.INDEX in found:
            shards = sorted(set(wanted.weight_map(self._text(found, wanted.INDEX), self.where).values()))
        code = self._code(found)
        return found | self._ask_for([name for name in [*shards, *code] if name not in found])

    def _code(self, found: dict[str, Any]) -> list[str]:
        """Files with the model's own code: config.json names their classes in `auto_map`."""
        if wanted.CONFIG not in found:
            return []
        try:
            classes = list(json.loads(self._text(found, wanted.CONFIG))["auto_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigError):
            return []  # what is wrong with config.json is said when it is read
        named = [name for name in classes if isinstance(name, str) and re.fullmatch(r"[\w-]+\.[\w.]+", name, re.ASCII)]
        return sorted({f"{name.partition('.')[0]}.py" for name in named if "--" not in name})

    def _ask_for(self, names: list[str]) -> dict[str, Any]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            answers = pool.map(lambda name: self._head(name), names)
            return {name: head for name, head in zip(names, answers, strict=True) if head is not None}

    def _text(self, found: dict[str, Any], name: str) -> bytes:
        return self.part(name, 0, wanted.readable(name, self._length(found[name], name), self.where))

    def sizes(self) -> Mapping[str, int]:
        return {name: self._length(head, name) for name, head in self._heads.items()}

    def _length(self, head: Any, name: str) -> int:
        said = head.get("X-Linked-Size") or head.get("Content-Length")
        if said is None or not re.fullmatch(r"[0-9]{1,15}", said):
            raise FetchError(f"{self._url(name)}: the server does not say how long it is, so nothing can be verified")
        return int(said)

    def part(self, name: str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        with self._answer(name, {"Range": f"bytes={start}-{end - 1}"}) as answer:
            if answer.status == 206:
                return bytes(answer.read(end - start))
            if start > 64 << 20:
                raise FetchError(f"{self._url(name)}: the server does not know ranges; use one that does")
            return bytes(answer.read(end)[start:])

    def hashed(self, names: list[str], say: Callable[[str], None]) -> dict[str, File]:
        """As the server tells it: a hub in X-Linked-Etag, others in a file SHA256SUMS; the rest is read."""
        sizes, told = self.sizes(), self._told()
        known = {name: File(size=sizes[name], sha256=told[name]) for name in names if name in told}
        rest = [name for name in names if name not in known]
        return known | hashing.by_reading(rest, sizes, self._stream, self.where, say)

    def _told(self) -> dict[str, str]:
        sums = self._head(SUMS)
        lines = self._text({SUMS: sums}, SUMS).decode(errors="replace").splitlines() if sums else []
        pairs = [line.strip().partition(" ") for line in lines]
        found = {
            name.strip().lstrip("*").removeprefix("./"): digest for digest, _, name in pairs if SHA256.fullmatch(digest)
        }
        tags = {name: (head.get("X-Linked-Etag") or "").strip('W/"') for name, head in self._heads.items()}
        return found | {name: tag for name, tag in tags.items() if SHA256.fullmatch(tag)}

    def _stream(self, name: str) -> Iterator[bytes]:
        """All of a file; a connection that is cut goes on where it was."""
        done, length, left = 0, self.sizes()[name], TRIES
        while done < length:
            try:
                with self._answer(name, {"Range": f"bytes={done}-"} if done else {}) as answer:
                    if done and answer.status != 206:
                        raise FetchError(f"{self._url(name)}: cut off at byte {done}, and the server knows no ranges")
                    while piece := answer.read(hashing.PIECE):
                        yield piece
                        done, left = done + len(piece), TRIES
                if done < length:
                    raise OSError("the connection ended")
            except (OSError, HTTPException) as error:
                left -= 1
                if not left:
                    raise FetchError(f"{self._url(name)}: {error} at byte {done}; call it again") from error
                time.sleep(self._wait)

    def _url(self, name: str) -> str:
        return f"{self.where}/{quote(name)}"

    def _head(self, name: str) -> Any:
        """The headers of a file, those of a hub's redirect stronger; None where there is none."""
        linked: dict[str, str] = {}
        try:
            with self._answer(name, {}, "HEAD", linked) as answer:
                return dict(answer.headers.items()) | linked
        except FetchError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code in (403, 404, 410):
                return None
            raise

    def _answer(
        self, name: str, headers: dict[str, str], method: str = "GET", linked: dict[str, str] | None = None
    ) -> Any:
        request = _Request(self._url(name), headers=headers, method=method)
        request.linked = {} if linked is None else linked
        for left in range(TRIES - 1, -1, -1):
            try:
                return self._director.open(request, timeout=TIMEOUT_SECONDS)
            except urllib.error.HTTPError as error:
                if error.code in BUSY and left:
                    time.sleep(self._wait * 2 ** (TRIES - 2 - left))
                    continue
                said = f"{error.code} {brief(str(error.reason))}"
                raise FetchError(f"{self._url(name)}: {said}; correct the address") from error
            except ValueError as error:  # of an address that it leads to
                raise FetchError(f"{self._url(name)}: {brief(str(error))}; correct the address") from error
            except (OSError, HTTPException) as error:
                if not left:
                    cause = brief(str(getattr(error, "reason", error)))
                    raise FetchError(f"{self._url(name)}: {cause}; correct the address, or call it again") from error
                time.sleep(self._wait * 2 ** (TRIES - 2 - left))
        raise AssertionError

    def source(self, files: dict[str, File]) -> Source:
        given = {name: file.model_dump() for name, file in files.items()}
        return read(Source, {"http": self.where, "files": given}, "the page")

    def revision(self, files: dict[str, File]) -> str:
        return hashing.revision(files)

    @property
    def title(self) -> str:
        return self.name()

    def name(self) -> str:
        """The last part of the address that is a name: of a hub's own, the one before `resolve`."""
        path = [unquote(part) for part in urlsplit(self.where).path.split("/") if part]
        if "resolve" in path[1:]:
            path = path[: path.index("resolve")]
        return path[-1] if path else (urlsplit(self.where).hostname or "model")
