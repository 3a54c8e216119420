"""What a SOURCE on the command line means: a repository of the hub, an http address, or a folder."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpufleet.checkpoint.folder import Folder
from gpufleet.checkpoint.hub import Hub
from gpufleet.checkpoint.reading import Files
from gpufleet.checkpoint.web import Web
from gpufleet.errors import ConfigError
from gpufleet.schema import ADDRESS
from gpufleet.wheelhouse.hub import checked, is_address

HUBS = ("huggingface.co", "www.huggingface.co", "hf.co", "hf-mirror.com")
REPO = re.compile(r"^([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([^\s@]+))?$")
LONGEST = 4096  # characters of a source, as of a path
HEAD_FILE = "model-mtp.safetensors"


def place(source: str, hub: str, revision: str | None = None, extra: tuple[str, ...] = ()) -> Files:
    """The place that `source` names. Raises ConfigError.

    + hub: its address, or that of a mirror
    + revision: of a repository, in place of what follows its `@`
    + extra: further files to ask for below an http address
    """
    if not source.strip() or not source.isprintable() or len(source) > LONGEST:
        raise ConfigError(["SOURCE is no folder, no http address, and no repository of the hub (owner/name): give one"])
    if source.startswith("hf:"):
        found = _repository(source.removeprefix("hf:"), hub, revision)
        if found is None:
            raise ConfigError([f"{source} is no repository of the hub: hf:owner/name, or hf:owner/name@revision"])
        return found
    if re.match(r"https?:", source):
        _sayable(source)
        return _of_hub(source, hub, revision) or _plain(Web(source, extra), source, revision)
    if _is_folder(source) or source.startswith(("/", "./", "../", "~")):
        return _plain(Folder(Path(source)), source, revision)
    found = _repository(source, hub, revision)
    if found is None:
        raise ConfigError([f"{source} is no folder, no http address, and no repository of the hub (owner/name)"])
    return found


def _sayable(address: str) -> None:
    """Raises ConfigError for an address that no page can have. What may be a password is not shown."""
    parts = address.partition("://")[2].partition("/")
    if "@" in parts[0]:
        problem = "an address with a login is in every log: let the server give the files without"
    elif "?" in address or "#" in address:
        problem = "give the address of the folder, without what follows `?` or `#`"
    elif not is_address(address) or not re.match(ADDRESS, address):
        problem = "it is no http address that a page can have: write other characters as %20"
    else:
        return
    raise ConfigError([f"{address.partition('://')[0]}://{parts[0].rpartition('@')[2]}: {problem}"])


def _is_folder(source: str) -> bool:
    try:
        return Path(source).expanduser().is_dir()
    except (OSError, RuntimeError):  # a name that is too long; a user that is not there
        return False


def _plain(found: Files, source: str, revision: str | None) -> Files:
    if revision is not None:
        raise ConfigError([f"--revision is for a repository of the hub, not for {source}"])
    return found


def _repository(text: str, hub: str, revision: str | None) -> Hub | None:
    match = REPO.match(text)
    return Hub(match[1], revision or match[2], hub) if match else None


def _of_hub(address: str, hub: str, revision: str | None) -> Hub | None:
    """The repository that a page of the hub or of its mirror shows, such as `https://huggingface.co/owner/name/tree/main`."""
    parts, mirror = urlsplit(address), urlsplit(checked(hub))
    path = [unquote(part) for part in parts.path.split("/") if part]
    if (parts.hostname, parts.port) not in [(mirror.hostname, mirror.port), *((name, None) for name in HUBS)]:
        return None
    if len(path) == 2 or (len(path) >= 4 and path[2] in ("tree", "blob", "commit")):
        return _repository("/".join(path[:2]), hub, revision or (path[3] if len(path) > 3 else None))
    return None


def head(given: str, hub: str) -> tuple[Files, str]:
    """The place and the file of `SOURCE[:FILE]`. Raises ConfigError."""
    source, colon, file = given.rpartition(":")
    if not colon or not file.endswith(".safetensors") or file.startswith("//"):
        source, file = given, HEAD_FILE
    return place(source, hub, None, (file,)), file
