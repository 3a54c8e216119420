"""What a box says goes to a terminal as text, whatever its programs have printed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet.errors import BoxError
from operations import remote, remote_shell

HOSTILE = "\x1b]0;title\x07red\x1b[31m"


def answer(*events: dict[str, Any]) -> list[str]:
    told: list[str] = []
    host: Any = SimpleNamespace(name="box")
    remote._result(host, [json.dumps(event) for event in events], told.append)
    return told


def test_a_line_that_is_told_holds_no_commands() -> None:
    (line,) = answer({"event": "log", "message": HOSTILE}, {"event": "result"})
    assert "red" in line and "\x1b" not in line and "\x07" not in line


def test_a_failure_is_one_line_without_commands() -> None:
    with pytest.raises(BoxError) as caught:
        answer({"event": "error", "cause": f"nvcc failed:\n{HOSTILE}", "remedy": "read\nit", "everywhere": True})
    assert str(caught.value).isprintable() and "nvcc failed:" in caught.value.cause and caught.value.everywhere


def test_a_full_disk_is_said_where_the_kit_finds_no_room() -> None:
    host: Any = SimpleNamespace(name="box")
    with pytest.raises(BoxError, match=r"the file system of /opt/gpufleet/kit is full\. Free some MiB"):
        remote_shell.complain(host, "cat: write error: No space left on device\n", None)
