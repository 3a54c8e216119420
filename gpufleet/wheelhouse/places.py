"""Where wheels are looked for: package indexes and local folders, as settings, pip and uv say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import url2pathname

from gpufleet.settings import Mirrors
from gpufleet.wheelhouse import web
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item

Run = Callable[[list[str]], str]


@dataclass(frozen=True)
class Places:
    """+ indexes: addresses of simple repositories, asked in this order
    + torch: the setting mirrors.torch, in place of a stack's `torch_index`
    + files: the setting mirrors.files, in place of a file's own address
    + folders: local folders of wheels (find-links)
    """

    indexes: tuple[str, ...]
    torch: str | None = None
    folders: tuple[Path, ...] = ()
    files: str | None = None

    def for_item(self, item: Item) -> list[str]:
        """The indexes to ask for a file, in order."""
        return self.indexes_for(item.origin) if isinstance(item.origin, FromIndex) else []

    def indexes_for(self, origin: FromIndex) -> list[str]:
        """The indexes to ask for a distribution, in order."""
        beside = [self.torch or origin.beside] if self.torch or origin.beside else []
        both = [*beside, *self.indexes] if origin.beside_first else [*self.indexes, *beside]
        return list(dict.fromkeys(index.rstrip("/") for index in both if index))

    @property
    def known(self) -> list[str]:
        """All addresses, for their logins."""
        return [*self.indexes, *([self.torch] if self.torch else [])]


def places(mirrors: Mirrors, environment: Mapping[str, str] = os.environ, run: Run | None = None) -> Places:
    """What the settings say, else the environment, else pip's configuration, else pip's own default.

    + run: runs pip with arguments; called only when neither settings nor environment name an index
    """
    folders = [*_words(environment, "PIP_FIND_LINKS"), *_words(environment, "UV_FIND_LINKS", ",")]
    if mirrors.pypi:
        return Places((mirrors.pypi,), mirrors.torch, _local(folders), mirrors.files)
    extra = [*_words(environment, "PIP_EXTRA_INDEX_URL"), *_words(environment, "UV_INDEX")]
    named = next(
        (environment[name] for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL") if environment.get(name)),
        None,
    )
    if named:
        return Places((named, *extra), mirrors.torch, _local(folders), mirrors.files)
    pip = run or _pip
    configured = configuration(pip(["config", "list"]))
    folders += configured.get("find-links", "").split()
    extra += configured.get("extra-index-url", "").split()
    if configured.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return Places((), mirrors.torch, _local(folders), mirrors.files)
    first = configured.get("index-url") or default_index(pip(["download", "--help"]))
    return Places(tuple(dict.fromkeys([first, *extra])), mirrors.torch, _local(folders), mirrors.files)


def configuration(listed: str) -> dict[str, str]:
    """Options of `pip config list`: the command's own (`download.index-url`) over the global ones."""
    found: dict[str, str] = {}
    lines = re.findall(r"^(global|download|:env:)\.([a-z-]+)=('.*'|\".*\")$", listed, re.MULTILINE)
    for section in ("global", "download", ":env:"):
        found.update({key: str(ast.literal_eval(value)) for where, key, value in lines if where == section})
    return found


def default_index(said: str) -> str:
    """The index that `pip download --help` calls its default."""
    if not (found := re.search(r"default\s+(https?://[^\s)]+?)\)", said)):
        raise FetchError("pip does not say which index is its default. Set mirrors.pypi, or PIP_INDEX_URL.")
    return found[1]


def _pip(arguments: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        raise FetchError(f"pip cannot say which index it uses: {said}. Mend that, or set mirrors.pypi.")
    return done.stdout


def uv_indexes(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The addresses that uv's variables name."""
    single = [environment[name] for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL") if environment.get(name)]
    return [*single, *_words(environment, "UV_INDEX"), *_words(environment, "UV_EXTRA_INDEX_URL")]


def _words(environment: Mapping[str, str], name: str, separator: str | None = None) -> list[str]:
    """The values of a variable; uv's may be named: `torch=https://…`."""
    words = [word.strip() for word in environment.get(name, "").split(separator)]
    return [re.sub(r"^[A-Za-z0-9_-]+=", "", word) if name.startswith("UV_") else word for word in words if word]


def _local(places: list[str]) -> tuple[Path, ...]:
    """Those that are folders of this machine."""
    found = [as_path(place) for place in dict.fromkeys(places)]
    return tuple(path for path in found if path and path.is_dir())


def as_path(place: str) -> Path | None:
    """The path of a `file:` address or of a plain path; None for an address of a server. Raises FetchError."""
    parts = web.split(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    try:
        return None if parts.scheme in ("http", "https") else Path(place).expanduser()
    except RuntimeError:
        raise FetchError(f"{place}: there is no such user. {web.MEND}.") from None
