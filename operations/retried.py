"""A job on a box that is run once more when a file it was to use has gone from the box's store meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpufleet.errors import BoxError
from gpufleet.wheelhouse.items import Item
from operations.shares import Box
from operations.swarm import SILENCE_SECONDS


def with_files(box: Box, job: Mapping[str, Any], items: Sequence[Item], bring: Callable[[], object]) -> dict[str, Any]:
    """What the job answers; it uses these files, which `bring` gets into the box's store.

    A file that turns out to be damaged is dropped there, and another deploy of this box frees what it has installed:
    then the files are brought again, and the job begins again, once. Raises BoxError.
    """
    try:
        return box.call("job", job)
    except BoxError as error:
        if error.everywhere or not _lacks(box, items):
            raise
        box.host.log(f"{error.cause}: it is brought once more")
    bring()
    return box.call("job", job)


def _lacks(box: Box, items: Sequence[Item]) -> bool:
    """Whether the box's store lacks one of these files; not when it cannot be asked."""
    wanted = [{"filename": item.filename, "sha256": item.sha256, "size": item.size} for item in items]
    try:
        return len(box.call("stock", {"files": wanted}, seconds=SILENCE_SECONDS)["have"]) < len(items)
    except BoxError:
        return False
