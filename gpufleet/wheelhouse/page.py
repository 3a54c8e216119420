"""Pages of the simple repository API: PEP 691 (JSON), PEP 503 (HTML)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from gpufleet.wheelhouse.items import Item

JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True)
class Link:
    """A file of a project. + sha256, size (bytes): None where the index does not say them"""

    filename: str
    url: str
    sha256: str | None = None
    size: int | None = None


def links(body: bytes, content_type: str, base: str) -> list[Link]:
    """The files of a page that came from `base`. Raises ValueError for what is no such page."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON or kind == "application/json":
        return _json(body, base)
    if kind in ("text/html", "application/vnd.pypi.simple.v1+html"):
        return _html(body, base)
    said = f"{content_type!r} ({len(body)} bytes)" if content_type else f"no content type ({len(body)} bytes)"
    raise ValueError(f"answers with {said}, not with a page of an index")


def choose(found: list[Link], item: Item) -> Link | None:
    """The pinned file: by its hash, or where the index says no hash by its name."""
    by_hash = [link for link in found if link.sha256 == item.sha256]
    by_name = [link for link in found if link.sha256 is None and link.filename == item.filename]
    return next(iter([*by_hash, *by_name]), None)


def _json(body: bytes, base: str) -> list[Link]:
    try:
        page = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"sends a page that is no JSON: {error}") from None
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, list):
        raise ValueError("sends a page without a list of files")
    found = []
    for file in files:
        if isinstance(file, dict) and isinstance(file.get("url"), str):
            hashes, size = file.get("hashes"), file.get("size")
            digest = hashes.get("sha256") if isinstance(hashes, dict) else None
            found.append(
                Link(
                    str(file.get("filename")),
                    urljoin(base, file["url"]).partition("#")[0],
                    digest.lower() if isinstance(digest, str) else None,
                    size if isinstance(size, int) else None,
                )
            )
    return found


class _Anchors(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if tag == "base" and address:
            self.base = urljoin(self.base, address)
        elif tag == "a" and address:
            url, _, fragment = urljoin(self.base, address).partition("#")
            digest = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})", fragment)
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            self.found.append(Link(name, url, digest[1].lower() if digest else None))


def _html(body: bytes, base: str) -> list[Link]:
    parser = _Anchors(base)
    try:
        parser.feed(body.decode("utf-8", "replace"))
        parser.close()
    except AssertionError as error:  # Python's own word for a declaration that it does not know
        raise ValueError(f"sends a page that is no HTML: {error}") from None
    return parser.found
