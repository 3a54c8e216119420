"""The genuine engine where there is no GPU: its platform is the CPU's, and what needs a card is stood in for."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import vllm.platforms
import vllm.utils.torch_utils
from vllm.platforms.cpu import CpuPlatform

# Before anything else of the engine: modules take these two by name when they are imported.
vllm.platforms._current_platform = CpuPlatform()
vllm.utils.torch_utils.PIN_MEMORY = False  # torch wants a device for it
# Each of the two asks once whether a package is there, and the answer is to be no.
import transformers  # noqa: E402, F401
import vllm._custom_ops  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402


class Anything(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


# What the environment lacks, and some module imports at its top.
LACKING = [
    *("flashinfer", "flashinfer.decode", "flashinfer.prefill", "flashinfer.utils"),
    *("torchvision.transforms.v2.functional", "torchvision.transforms.v2", "torchvision.transforms", "torchvision"),
]
sys.modules.update({name: Anything(name) for name in LACKING})
for name in LACKING:
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, sys.modules[name])


def imported_here(name: str) -> ModuleType:
    """Import a module, and make sure that it is the patched tree's (the working directory)."""
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).is_relative_to(Path.cwd()), module.__file__
    assert not Path(str(module.__file__)).is_symlink(), f"{name} is not patched"
    return module


def card(major: int, minor: int) -> SimpleNamespace:
    """A CUDA platform whose cards have this compute capability."""
    here = DeviceCapability(major, minor)
    return SimpleNamespace(
        device_name="a card",
        is_cuda=lambda: True,
        is_cpu=lambda: False,
        is_xpu=lambda: False,
        is_rocm=lambda: False,
        get_device_capability=lambda: here,
        is_device_capability=lambda wanted: here.to_int() == wanted,
        is_device_capability_family=lambda wanted: here.major == wanted // 10,
    )


@contextmanager
def log_of(module: ModuleType) -> Iterator[list[str]]:
    """The lines that a module logs, also those that it logs once a process."""
    lines: list[str] = []

    def note(message: str, *values: object, **_: object) -> None:
        lines.append(message % values if values else message)

    names = [f"{level}{once}" for level in ("debug", "info", "warning", "error") for once in ("", "_once")]
    with mock.patch.object(module, "logger", SimpleNamespace(**dict.fromkeys(names, note))):
        yield lines


def refusal(function: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """The message of the error that a call raises, with its type."""
    try:
        function(*arguments, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was accepted")
