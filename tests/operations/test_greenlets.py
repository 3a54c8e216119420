"""A controller opens no more files than it may: 1024 at once is what most systems allow a process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import gevent
import pytest

from operations import greenlets


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_tree_that_is_deleted_keeps_no_folder_open(tmp_path: Path) -> None:
    gevent.sleep(0.01)  # the loop is in use, and does not run while the tree is deleted
    for number in range(50):
        (tmp_path / "tree" / str(number)).mkdir(parents=True)
    before = opened()
    shutil.rmtree(tmp_path / "tree")
    assert opened() == before


def test_a_pipe_is_left_to_gevent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one that a greenlet waits for."""
    pipe, asked, gevents = os.pipe(), list[int](), greenlets._later
    monkeypatch.setattr(greenlets, "_later", asked.append)
    for end in pipe:
        os.close(end)
        gevents(end)
    assert asked == list(pipe)


def test_what_is_not_open_cannot_be_closed() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        greenlets.close(100_000)
