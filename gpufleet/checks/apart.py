"""Renders chat templates in a process of their own (gpufleet.template_child), which is kept for the next one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpufleet.checks.jinja import TemplateError

COMMAND = [sys.executable, "-m", "gpufleet.template_child"]
FOLDER = Path(__file__).parents[2]  # what `gpufleet` is imported from


def render(text: str, values: Mapping[str, Any]) -> str:
    """Raises TemplateError, also for what takes too long or too much memory."""
    found: str = _child.ask({"text": text, "values": dict(values)})["text"]
    return found


def variables(text: str) -> frozenset[str]:
    """The names that a template takes from outside. Raises TemplateError."""
    return frozenset(_child.ask({"text": text})["names"])


class _Child:
    """It ends by itself when this process does: nothing more comes on its stdin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._fatal: dict[str, str] = {}  # why, by template: it is not tried once more with other messages

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            fatal = self._fatal.get(asked["text"])
            answer = {"error": fatal} if fatal else self._ask(asked)
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer

    def _ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            line = json.dumps(asked)
        except RecursionError:
            return {"error": "what it is given is nested too deep"}
        process = self._process or self._start()
        assert process.stdin and process.stdout
        answered = ""
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answered = process.stdout.readline()
        except BaseException:  # Ctrl-C: its answer would be taken for that to the next question
            self._end(process)
            raise
        if answered.endswith("\n"):
            found: dict[str, Any] = json.loads(answered)
            return found
        code = self._end(process)
        slow = code == -signal.SIGVTALRM
        self._fatal[asked["text"]] = "takes too long: it may never end" if slow else f"ends its renderer with {code}"
        return {"error": self._fatal[asked["text"]]}

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        return self._process

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Its exit code; one that still runs is killed."""
        self._process = None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


_child = _Child()
