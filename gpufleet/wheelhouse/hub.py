"""Files of a models' hub, by its own client in a process beside: tried again, resumed, given up with a reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from gpufleet.errors import ConfigError
from gpufleet.settings import Mirrors
from gpufleet.wheelhouse import child, left, web
from gpufleet.wheelhouse.child import ChildError
from gpufleet.wheelhouse.items import FetchError, FromHub, Item
from gpufleet.wheelhouse.left import Ranges
from gpufleet.wheelhouse.pieces import Sums
from gpufleet.wheelhouse.store import FULL
from hostkit.fetch import GAIN, TRIES

HUB = "https://huggingface.co"  # the client's own default
AGAIN = ("later", "stalled", "died")  # what another try may mend
LONGEST_SECONDS = 300.0  # a hub that asks for more patience is asked again then
KEPT = "what came is kept, and the next run goes on with it"
CONNECTIONS = 8  # of all files together, as the hub's own command has it
STRETCH = 128 << 20  # bytes that one connection of a file with several is asked for


def endpoint(mirrors: Mirrors, environment: Mapping[str, str] = os.environ) -> str:
    """The address of the hub: the setting mirrors.hub, else HF_ENDPOINT, else the client's default."""
    return (mirrors.hub or environment.get("HF_ENDPOINT", "").strip() or HUB).rstrip("/")


def checked(endpoint: str) -> str:
    """The address of a hub as it is given. Raises ConfigError for what is none."""
    if not is_address(endpoint):
        shown = re.sub("//[^/]*@", "//", endpoint)
        raise ConfigError([f"{shown} is no http address of a hub: correct mirrors.hub, or the variable HF_ENDPOINT"])
    return endpoint


def is_address(text: str) -> bool:
    """Whether a client can take it apart."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - it is looked at when it is asked for
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"[\s\x00-\x20\x7f]", text)


def address(origin: FromHub, at: str) -> str:
    """Where a public file is to be had without the client."""
    return f"{at}/{origin.repo}/resolve/{origin.commit}/{quote(origin.path)}"


def connections(items: Iterable[Item], at_once: int) -> int:
    """How many each of these files may have, when so many files come at once."""
    large = sum((item.size or 0) > STRETCH for item in items)
    return max(1, CONNECTIONS // max(1, min(large, at_once)))


def fetch(
    item: Item,
    origin: FromHub,
    at: str,
    path: Path,
    beat: Callable[[int], None],
    say: Callable[[str], None],
    wait: Callable[[float], object],
    holes: Ranges | None = None,
    connections: int = 1,
) -> tuple[Sums, int]:
    """Get what lacks of a file; returns what the file is now, and the bytes that came. Raises FetchError.

    + at: the hub's address
    + path: is gone on with; with `holes` only these ranges of it are got, one after the other
    + beat: told the bytes that are here; what it raises ends everything
    + wait: takes some seconds
    """
    came, furthest, failed, size = 0, 0, 0, item.size or 0
    wanted = left.total(_lacking(path, size) if holes is None else holes)
    while True:
        ranges = _lacking(path, size) if holes is None else _rest(holes, came)
        before = wanted - left.total(ranges)
        several = holes is None and connections > 1 and left.total(ranges) > STRETCH
        tell = _Tell(size - wanted + before, beat)
        told = {
            "path": str(path), "size": size, "sha256": item.sha256, "ranges": ranges,
            "hub": {"endpoint": at, "repo": origin.repo, "commit": origin.commit, "path": origin.path},
            "connections": connections if several else 1, "stretch": STRETCH,
            "left": several or (holes is None and left.read(path, size) is not None),
        }  # fmt: skip
        try:
            return child.run(told, tell, environment(at)), wanted
        except ChildError as error:
            came = before + tell.done
            failed = 0 if came >= furthest + GAIN else failed + 1
            furthest = max(furthest, came)
            if error.kind not in AGAIN or failed >= TRIES:
                raise FetchError(explain(item, origin, at, error)) from None
            pause = min(error.retry_after or min(2.0 ** (failed - 1), 30.0), LONGEST_SECONDS) if failed else 0.0
            say(f"{item.filename}: {web.without_login(at)}: {error}; again in {pause:g} s")
        _pause(pause, wait, tell)


class _Tell:
    """What the child is told to tell: bytes of its ranges, made bytes of the file."""

    def __init__(self, there: int, beat: Callable[[int], None]) -> None:
        self.there, self.beat, self.done = there, beat, 0

    def __call__(self, done: int | None) -> None:
        self.done = self.done if done is None else done
        self.beat(self.there + self.done)


def _pause(seconds: float, wait: Callable[[float], object], tell: _Tell) -> None:
    while seconds > 0:
        wait(min(seconds, 0.5))
        seconds -= 0.5
        tell(None)


def _lacking(path: Path, size: int) -> Ranges:
    """What lacks of a part. One that is too long is of something else."""
    if (kept := left.read(path, size)) is not None:
        return kept
    left.drop(path)
    have = path.stat().st_size if path.exists() else 0
    if have > size:
        path.unlink()
        have = 0
    return [(have, size - have)] if have < size else []


def _rest(ranges: Ranges, came: int) -> Ranges:
    """These ranges without their first bytes."""
    rest = []
    for offset, length in ranges:
        skipped = min(came, length)
        came -= skipped
        if skipped < length:
            rest.append((offset + skipped, length - skipped))
    return rest


def environment(at: str) -> dict[str, str]:
    """What the client in the child is set to. A token is in this process's environment or in the client's own file."""
    return {
        "HF_ENDPOINT": at,
        "HF_HUB_DISABLE_XET": "1",  # which cannot be resumed
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def explain(item: Item, origin: FromHub, at: str, error: ChildError) -> str:
    """File, cause and remedy."""
    where, repo = web.without_login(at), f"{origin.repo} at {origin.commit[:12]}"
    mirror = "set mirrors.hub to another, or unset it" if where != HUB else "set mirrors.hub to a mirror of the hub"
    remedies = {
        "denied": "Look whether source.hub of the model's page is spelled right. For a private or gated repository "
        f"set HF_TOKEN on this controller to a token that may read it, and accept its terms at {HUB}/{origin.repo}",
        "absent": "Correct source in the model's page: `gpufleet models add` writes it anew",
        "other": "The page is of something else, or the mirror is wrong: `gpufleet models add` writes the page anew",
        "no hub": f"Correct that address: {mirror}",
        "offline": "Unset HF_HUB_OFFLINE on this controller",
        "client": "Install the requirements of gpufleet again",
        "full": FULL,
        "disk": "Mend that, and call it again",
    }
    remedy = remedies.get(error.kind, f"Check the network; if it stays, {mirror}. {KEPT.capitalize()}")
    if error.kind in ("full", "disk", "client", "offline"):
        return f"{item.filename}: {error}. {remedy}."
    return f"{item.filename} of {repo} from {where}: {error}. {remedy}."
