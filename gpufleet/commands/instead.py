"""Ends a command so that pyinfra goes on in its place, in the same process: starting Python once more takes time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


class Instead(BaseException):
    """Leaves click, so that signals and the exit code are pyinfra's own, which config.py sees to."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(*arguments)
        self.arguments = arguments

    def go_on(self) -> NoReturn:
        """Run pyinfra with the arguments. Raises SystemExit."""
        sys.argv[:] = ["pyinfra", *self.arguments]
        from operations.start import main

        main()
        sys.exit(0)
