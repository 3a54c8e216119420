"""Reading the files that the controller sends to boxes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import gevent

from gpufleet.errors import BoxError
from operations.member import AGAIN, Damaged

BLOCK = 256 * 1024


def blocks(stretches: Iterable[tuple[Path, int, int]], name: str) -> Iterator[bytes]:
    """What is in these files, each from an offset on and of a length. Raises BoxError when one cannot be read, Damaged
    when it is gone: another box found it damaged, and it is being mended."""
    for path, offset, left in stretches:
        try:
            with path.open("rb") as handle:
                handle.seek(offset)
                while left and (block := handle.read(min(left, BLOCK))):
                    left -= len(block)
                    yield block
        except FileNotFoundError as error:
            raise Damaged(name, path, gone=True) from error
        except OSError as error:  # not to be taken for one of the connection's
            raise BoxError(name, f"{path} on this controller cannot be read: {error.strerror}", AGAIN) from error


def is_right(path: Path, sha256: str) -> bool:
    """Whether a file of the store is there, and what its name says."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
                gevent.sleep(0)  # other boxes' transfers go on
    except FileNotFoundError:  # another box found it damaged
        return False
    return digest.hexdigest() == sha256
