"""pyinfra's command as `gpufleet deploy` starts it: the same, without what its imports do that a deploy does not need.

What is put off here is about a quarter of the time that pyinfra takes to start (benchmarks/startup.py).
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
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


class Typeguard(ModuleType):
    """typeguard, for pyinfra, which asks it about global arguments of operations: it brings unittest and asyncio."""

    class TypeCheckError(Exception):
        pass

    def check_type(self, value: Any, wanted: Any) -> Any:
        """Raises TypeCheckError."""
        if isinstance(wanted, type) and type(value) is wanted:
            return value
        real = _real("typeguard", self)
        try:
            return real.check_type(value, wanted)
        except real.TypeCheckError as error:
            raise self.TypeCheckError(str(error)) from None


def _real(name: str, in_its_place: ModuleType) -> Any:
    """The module itself, which others that import it from now on do not get."""
    del sys.modules[name]
    try:
        return importlib.import_module(name)
    finally:
        sys.modules[name] = in_its_place


@contextmanager
def no_plugins_of_gevent() -> Iterator[None]:
    """At each of its 25 patches gevent asks for entry points, and each time all installed packages are read."""
    original = importlib.metadata.entry_points

    def entry_points(**wanted: Any) -> Any:
        return () if str(wanted.get("group", "")).startswith("gevent.") else original(**wanted)

    importlib.metadata.entry_points = entry_points
    try:
        yield
    finally:
        importlib.metadata.entry_points = original


@contextmanager
def nothing_collected() -> Iterator[None]:
    """What is imported stays: looking through all of it for garbage again and again is a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main() -> None:
    """Run pyinfra with this process's arguments."""
    loaded()()


def loaded() -> Callable[[], Any]:
    """pyinfra's command, with what of gpufleet every run needs imported."""
    with nothing_collected():
        # paramiko has it for `Match exec` of an ssh config alone, and it brings asyncio, unittest and a YAML parser.
        sys.modules.setdefault("invoke", Later("invoke"))
        # What `pyinfra INVENTORY exec` runs; it brings all that pyinfra knows of packages and services.
        sys.modules.setdefault("pyinfra.operations.server", Later("pyinfra.operations.server"))
        sys.modules.setdefault("typeguard", Typeguard("typeguard"))
        with no_plugins_of_gevent():
            from pyinfra_cli.main import main as pyinfra
        importlib.import_module("operations.session")  # which config.py needs
    return pyinfra
