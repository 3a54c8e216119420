"""sha256 of files by reading them, said as it goes on: a checkpoint takes minutes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

from gpufleet.errors import ConfigError
from gpufleet.models import File
from gpufleet.wheelhouse.progress import Progress, size

PIECE = 4 << 20  # bytes at a time


def by_reading(
    names: list[str],
    sizes: Mapping[str, int],
    stream: Callable[[str], Iterator[bytes]],
    where: str,
    say: Callable[[str], None],
) -> dict[str, File]:
    """Size and sha256 of each of `names`. Raises ConfigError for a file that is not as long as it was said to be.

    + stream: the bytes of a file, from its beginning
    """
    if not names:
        return {}
    say(f"reading {len(names)} files, {size(sum(sizes[name] for name in names))}, for their sha256")
    progress = Progress({name: sizes[name] for name in names}, {}, say)
    found = {}
    for name in names:
        digest, done = hashlib.sha256(), 0
        progress.begin(name)
        for piece in stream(name):
            digest.update(piece)
            done += len(piece)
            progress.at(name, done)
        progress.end(name)
        if done != sizes[name]:
            raise ConfigError([f"{where}: {name} has {done} bytes, and was said to have {sizes[name]}; call it again"])
        found[name] = File(size=done, sha256=digest.hexdigest())
    return found


def revision(files: Mapping[str, File]) -> str:
    """A name for this state of files that have none of their own: 12 digits made of all their sha256."""
    made_of = {name: file.sha256 for name, file in sorted(files.items())}
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
