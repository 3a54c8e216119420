"""Addresses of pinned files: which index or folder has each, asked once for each project, several at once."""

from __future__ import annotations

import hashlib
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpufleet.wheelhouse import mirror, page, pool, web
from gpufleet.wheelhouse.items import FetchError, FromIndex, FromUrl, Item
from gpufleet.wheelhouse.page import Link
from gpufleet.wheelhouse.places import Places, as_path
from hostkit.fetch import said

AT_ONCE = 8
TRIES = 3
LARGEST_PAGE = 64 << 20  # bytes; the largest of the public index have some 10 MiB
NOT_HERE = (401, 403, 404, 410)  # object stores behind an index say 403 for what they lack
UNREACHED = (OSError, http.client.HTTPException, ValueError)
NAMED = 5  # files that an error names


@dataclass(frozen=True)
class Address:
    """Where a file is: `url` of a server, or `path` on this machine. + size: bytes, None where nobody says it"""

    url: str = ""
    path: Path | None = None
    size: int | None = None


@dataclass
class Finder:
    """Asks indexes; pages it has seen are not asked for again, an index that does not answer is left alone."""

    places: Places
    local_only: bool = False  # only what is on this machine: folders, indexes with `file:` addresses
    pages: dict[tuple[str, str], list[Link] | str] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)

    def addresses(self, items: Iterable[Item]) -> dict[str, Address]:
        """The address of each file that can be found, by its hash.

        Raises FetchError for the rest, unless `local_only`.
        """
        listed = list(items)
        found = {item.sha256: address for item in listed if (address := self._at_hand(item))}
        projects: dict[str, list[Item]] = {}
        for item in listed:
            if isinstance(item.origin, FromIndex) and item.sha256 not in found:
                projects.setdefault(canonicalize_name(item.origin.name), []).append(item)
        open_url = web.opener(self.places.known)

        def look(name: str, stop: threading.Event) -> dict[str, Address]:
            return self._project(name, projects[name], open_url, stop)

        for answer in pool.each(look, projects, AT_ONCE):
            found.update(answer)
        missing = [item for item in listed if item.sha256 not in found]
        if missing and not self.local_only:
            raise FetchError(self._lacking(missing))
        return found

    def _at_hand(self, item: Item) -> Address | None:
        for folder in self.places.folders:
            if _is(folder / item.filename, item):
                return local(folder / item.filename)
        if isinstance(item.origin, FromUrl) and not self.local_only:
            return Address(mirror.of_file(item.origin.url, item.filename, self.places.files), size=item.size)
        return None

    def _project(self, name: str, items: list[Item], open_url: Any, stop: threading.Event) -> dict[str, Address]:
        found: dict[str, Address] = {}
        for item in items:
            for index in self.places.for_item(item):
                if stop.is_set():
                    raise pool.Stopped
                if self.local_only and as_path(index) is None:
                    continue
                links = self._page(index, name, open_url)
                link = page.choose(links, item) if isinstance(links, list) else None
                path = as_path(link.url) if link else None
                if link and (path is None or _is(path, item)):
                    found[item.sha256] = local(path) if path else Address(link.url, size=item.size or link.size)
                    break
        return found

    def _page(self, index: str, name: str, open_url: Any) -> list[Link] | str:
        """The files an index has of a project, or why it has none."""
        if index in self.dead:
            return self.dead[index]
        if (index, name) not in self.pages:
            self.pages[index, name] = read_page(index, name, open_url)
            answer = self.pages[index, name]
            if isinstance(answer, str) and answer.startswith("does not answer"):
                self.dead[index] = answer
        return self.pages[index, name]

    def _lacking(self, missing: list[Item]) -> str:
        """What was asked where for each file, and what to do."""
        lines = []
        for item in missing[:NAMED]:
            assert isinstance(item.origin, FromIndex)
            asked = []
            for index in self.places.for_item(item):
                key = (index, canonicalize_name(item.origin.name))
                answer = self.dead.get(index) or self.pages.get(key, "was not asked")
                found = answer if isinstance(answer, str) else _other(answer, item)
                asked.append(f"{web.without_login(index)} {found}")
            lines.append(f"{item.filename}: {'; '.join(asked) or 'no index is set'}")
        if len(missing) > NAMED:
            lines.append(f"and {len(missing) - NAMED} more")
        remedy = "Look at the network, at mirrors.pypi and mirrors.torch, or at pip's settings (pip config list)"
        return f"{len(missing)} files cannot be found: {'. '.join(lines)}. {remedy}."


def local(path: Path) -> Address:
    return Address(path=path, size=path.stat().st_size)


def _is(path: Path, item: Item) -> bool:
    """Whether a file of this machine is the pinned one: folders hold what somebody built under the same name."""
    try:
        if item.size not in (None, path.stat().st_size):
            return False
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == item.sha256
    except (OSError, ValueError):  # the latter for a name that no file can have
        return False


def _other(links: list[Link], item: Item) -> str:
    """What an index has that has not the pinned hash."""
    twin = next((link for link in links if link.filename == item.filename), None)
    if twin:
        return f"has it with another sha256 ({twin.sha256}): it was changed there, or in the lock or page here"
    return "has the project, not this file"


def read_page(index: str, name: str, open_url: Any) -> list[Link] | str:
    """A project's files, or why there are none: `has no such project`, `does not answer: …`, another reason."""
    if (folder := as_path(index)) is not None:
        return _local_page(folder / name)
    url = f"{web.without_login(index)}/{name}/"
    reason = "nothing"
    for attempt in range(TRIES):
        if attempt:
            time.sleep(2 ** (attempt - 1))
        try:
            request = urllib.request.Request(url, headers={"Accept": page.ACCEPT})
            with open_url(request) as answer:
                body = answer.read(LARGEST_PAGE + 1)
                kind, base = answer.headers.get("Content-Type") or "", answer.geturl()
                whole = said(answer.headers, r"(\d+)$", "Content-Length")
            if not answer.headers:
                raise OSError("its answer ends before its headers")
            if whole is not None and len(body) < min(whole, LARGEST_PAGE):
                raise OSError(f"its page ends after {len(body)} of {whole} bytes")
        except urllib.error.HTTPError as error:
            if error.code in NOT_HERE:
                return "has no such project" if error.code in (404, 410) else f"answers {error.code}"
            reason = f"answers {error.code}"
            if error.code < 500 and error.code != 429:
                return reason
            continue
        except UNREACHED as error:
            reason = f"does not answer: {error}"
            continue
        if len(body) > LARGEST_PAGE:
            return f"sends more than {LARGEST_PAGE} bytes"
        try:
            return page.links(body, kind, base)
        except ValueError as error:
            return str(error)
    return reason


def _local_page(folder: Path) -> list[Link] | str:
    """The same of an index on this machine: a page, or the files themselves."""
    listed = folder / "index.html"
    try:
        if listed.is_file():
            return page.links(listed.read_bytes(), "text/html", listed.as_uri())
        if folder.is_dir():
            return [Link(path.name, path.as_uri()) for path in sorted(folder.iterdir()) if path.is_file()]
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    return "has no such project"
