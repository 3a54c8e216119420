"""The committed tables of engines are what the genuine engines say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.command import REPOSITORY
from tests.golden.environments import python_with

TABLES = REPOSITORY / "files" / "engines"


@pytest.mark.large
@pytest.mark.parametrize("engine", [table.stem for table in sorted(TABLES.glob("*.txt"))])
def test_the_table_is_what_the_engine_says(engine: str, tmp_path: Path) -> None:
    subprocess.run([str(python_with(engine)), str(TABLES / "make.py"), str(tmp_path)], check=True)
    assert (tmp_path / f"{engine}.txt").read_text() == (TABLES / f"{engine}.txt").read_text()
