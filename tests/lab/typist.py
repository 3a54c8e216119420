"""An owner at a terminal: types lines into a shell, reads what it says, answers what it asks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path

READY = "typist-is-ready> "
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Typist:
    """A shell in a terminal of its own.

    + typed: each line that was typed, answers too
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.typed: list[str] = []
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x32\x00\xc8\x00" + bytes(4))  # 50 lines of 200 letters
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder,
            env={**env, "PS1": READY, "PS2": "", "VIRTUAL_ENV_DISABLE_PROMPT": "1", "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._read({}, 30)

    def __enter__(self) -> Typist:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._terminal)

    def command(self, text: str, answers: Mapping[str, str] | None = None, seconds: float = 900) -> tuple[int, str]:
        """(exit code, what was said) of a command line, which may go over several.

        + answers: what is typed at a question, each once and only when it is asked
        """
        for line in text.split("\n"):
            self._type(line)
        said = self._read(dict(answers or {}), seconds)
        os.write(self._terminal, b"echo code=$?\n")  # this is the test's, not the owner's
        code = re.search(r"^code=(\d+)", self._read({}, 30), re.MULTILINE)
        assert code, said
        return int(code[1]), said

    def _type(self, line: str) -> None:
        self.typed.append(line)
        os.write(self._terminal, f"{line}\n".encode())

    def _read(self, answers: dict[str, str], seconds: float) -> str:
        """What is said until the shell is ready for the next line."""
        said, seen, until = b"", 0, time.monotonic() + seconds
        while True:
            text = ESCAPES.sub("", said.decode("utf-8", "replace")).replace("\r\n", "\n")
            if text.endswith(READY):
                return text.removesuffix(READY)
            for question in [question for question in answers if question in text[seen:]]:
                seen = len(text)
                self._type(answers.pop(question))
            assert time.monotonic() < until, f"it does not end:\n{text}"
            if select.select([self._terminal], [], [], 0.2)[0]:
                said += os.read(self._terminal, 65536)
