"""The order of operations as pyinfra finds it, by the lines that call them, without reading the files these are in.

pyinfra asks `inspect` for each frame's file and text, for each operation on each box: with a hundred boxes that takes
longer than connecting to them.
"""

from __future__ import annotations

import importlib
import sys
from types import FrameType

import pyinfra
from pyinfra.api.state import State
from pyinfra.api.util import PYINFRA_INSTALL_DIR


def install() -> None:
    module = importlib.import_module("pyinfra.api.operation")  # `pyinfra.api.operation` is the decorator in it
    module.get_operation_order_from_stack = of_stack  # type: ignore[attr-defined]


def of_stack(state: State) -> list[int]:
    """The numbers of the lines from the deploy file on, without pyinfra's own; before them that of the file."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    files = [frame.f_code.co_filename for frame in frames]
    first = 0
    if state.current_deploy_filename:
        first = next((at for at, file in enumerate(files) if file == state.current_deploy_filename), len(files))
    lines = [state.current_op_file_number] if pyinfra.is_cli else []
    return lines + [
        frame.f_lineno
        for frame, file in zip(frames[first:], files[first:], strict=True)
        if not file.startswith(PYINFRA_INSTALL_DIR)
    ]
