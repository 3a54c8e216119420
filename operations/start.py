"""pyinfra's command as `gpufleet deploy` starts it: the same, without what its imports do that a deploy does not need.

What is put off here is about a quarter of the time that pyinfra takes to start (benchmarks/startup.py).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """A module that is imported when something of it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what import itself asks
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def entry_points_read_once() -> Iterator[None]:
    """gevent asks for entry points at each of its 25 patches, and each time all installed packages are read again."""
    original = importlib.metadata.entry_points
    found = original()
    importlib.metadata.entry_points = lambda **wanted: found.select(**wanted)  # type: ignore[assignment]
    try:
        yield
    finally:
        importlib.metadata.entry_points = original


def main() -> None:
    """Run pyinfra with this process's arguments."""
    # paramiko has it for `Match exec` of an ssh config alone, and it brings asyncio, unittest and a YAML parser.
    sys.modules.setdefault("invoke", Later("invoke"))
    with entry_points_read_once():
        from pyinfra_cli.main import main as pyinfra
    pyinfra()
