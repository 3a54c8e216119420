"""Things built once, each in a directory named by its recipe: a changed recipe builds anew.

A build that is interrupted leaves nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.errors import LabError


def digest(recipe: Any) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def once(cache: Path, what: str, recipe: Any, build: Callable[[Path], None]) -> Path:
    """The directory <what>-<digest of the recipe>, made by `build` in a directory beside it when it is missing."""
    done = cache / f"{what}-{digest(recipe)}"
    if done.is_dir():
        return done
    aside = cache / f".building-{what}-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        build(aside)
        aside.rename(done)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return done


@contextmanager
def locked(directory: Path, waiting_for: str) -> Iterator[None]:
    """Only one command at a time changes a directory; the lock goes with the process, also when it is killed."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"another command is working on {waiting_for}", "Wait for it to end.") from None
        yield
