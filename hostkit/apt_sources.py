"""apt's list of repositories: what the box has, and NVIDIA's added with its key checked."""

from __future__ import annotations

import glob
import os
import re
from typing import Iterator, List, Tuple

from hostkit import files, openpgp
from hostkit.errors import Failure

LIST = "/etc/apt/sources.list"
SOURCES = "/etc/apt/sources.list.d"
KEYRINGS = "/etc/apt/keyrings"


def bare(url: str) -> str:
    """An address without scheme and closing slashes: `http://` and `https://` are the same repository to an owner."""
    return re.sub(r"^[a-z][a-z0-9+]*:/*", "", url.strip()).rstrip("/")


def same(one: str, other: str) -> bool:
    return bare(one) == bare(other)


def host(url: str) -> str:
    """`apt.example.org`, without a port; empty for a file."""
    found = re.match(r"[a-z][a-z0-9+]*://([^/:]+)", url)
    return found.group(1) if found else ""


def configured() -> Iterator[Tuple[str, str]]:
    """(file, address) of every repository of packages that apt asks now."""
    for path in [LIST, *sorted(glob.glob(SOURCES + "/*.list")), *sorted(glob.glob(SOURCES + "/*.sources"))]:
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                text = "\n".join(line for line in handle.read().splitlines() if not line.lstrip().startswith("#"))
        except OSError:
            continue
        for url in _deb822(text) if path.endswith(".sources") else _one_line(text):
            yield path, url


def _one_line(text: str) -> List[str]:
    """`deb [signed-by=/x] http://host/path suite main`."""
    found = re.findall(r"^\s*deb\s+(?:\[[^\]]*\]\s*)?(\S+)", text, re.MULTILINE)
    return [str(url) for url in found]


def _deb822(text: str) -> List[str]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        joined = re.sub(r"\n[ \t]+", " ", stanza)
        fields = {key.lower(): value for key, value in re.findall(r"^([\w-]+):[ \t]*(.*)$", joined, re.MULTILINE)}
        off = fields.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off", "without", "disable")
        if not off and "deb" in fields.get("types", "").split():
            found += fields.get("uris", "").split()
    return found


def files_with(url: str) -> List[str]:
    """The files that name this address, or the repository that it is in."""
    inside = bare(url)
    return sorted(
        {path for path, found in configured() if inside == bare(found) or inside.startswith(bare(found) + "/")}
    )


def add_repository(repository: dict) -> None:
    """Write key and source of `repository` {name, url, key_url, fingerprint}; what is right already is left.

    An owner's own source with this address is used as it is (two entries with unlike Signed-By make apt refuse both).
    Raises Failure when the key is another than the pinned one.
    """
    url = repository["url"]
    source = os.path.join(SOURCES, repository["name"] + ".sources")
    if any(same(found, url) for path, found in configured() if path != source):
        files.with_suppressed_unlink(source)  # ours from before the owner had it
        return
    keyring = os.path.join(KEYRINGS, repository["name"] + ".asc")
    text = "Types: deb\nURIs: {}\nSuites: /\nSigned-By: {}\n".format(url, keyring).encode()
    wanted = repository["fingerprint"].replace(" ", "").upper()
    if _content(source) == text and openpgp.fingerprints(_content(keyring)) == {wanted}:
        return
    from hostkit import fetch  # most installs are from what apt has, and need no client for http

    key = fetch.fetch_bytes(repository["key_url"], 1 << 20)
    found = openpgp.fingerprints(key)
    if found != {wanted}:
        raise Failure(
            "the key at {} is {}, not the pinned {}".format(
                repository["key_url"], ", ".join(sorted(found)) or "no OpenPGP key", wanted
            ),
            "do not trust it; check mirrors.cuda_key and mirrors.cuda_key_fingerprint against NVIDIA's own page",
        )
    files.write(keyring, key)
    files.write(source, text)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return b""
