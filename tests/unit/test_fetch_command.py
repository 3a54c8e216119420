"""`gpufleet fetch` as a user calls it: by stack, by inventory, into an archive and out of it, interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpufleet import known
from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.runtime import Runtime
from gpufleet.settings import Fetch
from gpufleet.wheelhouse import targets
from gpufleet.wheelhouse.prepare import ready
from gpufleet.wheelhouse.progress import size
from gpufleet.wheelhouse.store import Store
from tests.command import GPUFLEET, owners_folder, run
from tests.unit.fleets import cpu_facts
from tests.unit.servers import Server
from tests.unit.tiny_stack import Tiny

INVENTORY = """
from gpufleet.inventory import by_traits
boxes = [("one", {{"ssh_hostname": "127.0.0.1", "serve": ["qwen3-0.6b"], "stack": "tiny"}}),
         ("two", {{"ssh_hostname": "127.0.0.2", "serve": ["qwen3-0.6b"], "stack": "{other}"}})]
globals().update(by_traits(boxes))
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    with Server() as server:
        yield Tiny(tmp_path / "owner", server)


def environment(tiny: Tiny, store: Path) -> dict[str, str]:
    """Mirrors by the environment, as a controller without settings has them; git's has no variable."""
    return {"PIP_INDEX_URL": f"{tiny.server.url}/simple", "PIP_FIND_LINKS": "", "GPUFLEET_STORE": str(store)}


def fetch(tiny: Tiny, *arguments: str, store: str = "store") -> subprocess.CompletedProcess[str]:
    place = tiny.root.parent / store
    return run(tiny.root, "fetch", *arguments, program=GPUFLEET, **environment(tiny, place))


def git_mirror(tiny: Tiny) -> str:
    return f"mirrors.git=file://{tiny.root}/git/{{path}}"


def test_a_stack_by_name_then_nothing_more(tiny: Tiny) -> None:
    given = ("--stack", "tiny", "--python", "3.11", "--set", git_mirror(tiny))
    done = fetch(tiny, *given)
    assert done.returncode == 0, done.stdout
    assert "tiny, Python 3.11" in done.stdout and "making the wheel of engine 1.0" in done.stdout
    came = size(sum(map(len, tiny.wheels.values())))
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(rf"7 files, \d+ KiB in {tiny.root.parent}/store; 5 of them \({came}\) came from outside", last)
    again = fetch(tiny, *given)
    assert again.returncode == 0 and "0 of them (0 KiB) came from outside" in again.stdout
    both = fetch(tiny, "--stack", "tiny", "--set", git_mirror(tiny))
    assert "tiny, Python 3.12" in both.stdout and "0 of them" in both.stdout


def test_an_archive_is_all_that_a_controller_without_internet_needs(tiny: Tiny) -> None:
    done = fetch(tiny, "--stack", "tiny", "--set", git_mirror(tiny), "--archive", "all.tar")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{tiny.root}/all.tar: ")
    asked = len(tiny.server.asked)
    (tiny.root / "git").rename(tiny.root / "gone")
    there = fetch(tiny, "--from", "all.tar", store="other")
    assert (there.returncode, there.stdout) == (0, f"7 files in {tiny.root.parent}/other, 7 of them new\n")
    store = Store(tiny.root.parent / "other")
    for python in ("3.11", "3.12"):
        items = ready(Runtime(tiny.stack, python), store, tiny.mirrors, Fetch(offline=True), print)
        assert all(store.has(item) for item in items)
    assert len(tiny.server.asked) == asked


def keep_facts(folder: Path, *names: str) -> None:
    for name in names:
        assert known.keep(folder / "inventory" / "facts" / "home", name, cpu_facts())


def test_a_fleet_by_the_facts_that_were_kept(tiny: Tiny, tmp_path: Path) -> None:
    mirrors = {"pypi": f"{tiny.server.url}/simple", "git": git_mirror(tiny).partition("=")[2]}
    text = INVENTORY.format(other="tiny")
    owners_folder(tiny.root, text, group_data__all=f"mirrors = {mirrors!r}\nfetch = {{'offline': True}}\n")
    unseen = run(tmp_path, "fetch", str(tiny.root / "inventory/home.py"), program=GPUFLEET)
    assert unseen.returncode == 2 and "nothing is known yet" in unseen.stdout
    keep_facts(tiny.root, "one", "two")
    done = run(
        tmp_path,
        *("fetch", str(tiny.root / "inventory/home.py"), "--archive", "all.tar"),
        program=GPUFLEET,
        GPUFLEET_STORE=str(tmp_path / "store"),
        PIP_FIND_LINKS="",
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("tiny, Python") == 1, "boxes alike need the same files"
    assert (tmp_path / "all.tar").is_file(), "where the caller is, not in the fleet's folder"


def test_what_cannot_be_had_is_1_and_the_rest_is_kept(tiny: Tiny) -> None:
    del tiny.server.files["/files/beta-2.0-py3-none-any.whl"]
    done = fetch(tiny, "--stack", "tiny", "--set", git_mirror(tiny), "--archive", "all.tar")
    assert done.returncode == 1
    assert "gpufleet: beta-2.0-py3-none-any.whl: " in done.stdout and "answers 404" in done.stdout
    assert "tiny, Python 3.12" in done.stdout, "the others are fetched"
    assert not (tiny.root / "all.tar").exists()
    (tiny.root / "bad.tar").write_bytes(b"no archive")
    assert fetch(tiny, "--from", "bad.tar").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give an inventory"),
        (("inventory/home.py", "--stack", "tiny"), "not both"),
        (("inventory/none.py",), "there is no inventory"),
        (("--stack", "tiny", "--limit", "one"), "--limit is for an inventory"),
        (("--from", "a.tar", "--stack", "tiny"), "--from goes alone"),
        (("--from", "a.tar"), "there is no file a.tar"),
        (("--python", "3.11"), "give an inventory"),
        (("--stack", "tinny"), "did you mean 'tiny'?"),
        (("--stack", "tiny", "--python", "3.9"), "--python 3.9: tiny has locks for 3.11, 3.12"),
        (("--stack", "tiny", "--arch", "sm75"), "--arch sm75: tiny is for cpu"),
        (("--arch", "sm76"), "--arch: no stack is for 'sm76'; did you mean"),
        (("--stack", "planned"), "has no lock"),
        (("--stack", "tiny", "--set", "mirrors.pypy=x"), "did you mean 'pypi'?"),
    ],
)
def test_a_wrong_call_is_2_and_asks_nobody(
    tiny: Tiny, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.root)
    stacks = tiny.root / "files" / "stacks"
    page = yaml.safe_load((stacks / "tiny.yaml").read_text())
    planned = {key: value for key, value in page.items() if key not in ("lock", "uv")} | {"name": "planned"}
    (stacks / "planned.yaml").write_text(yaml.safe_dump(planned))
    done = CliRunner().invoke(main, ["fetch", *arguments])
    assert done.exit_code == 2 and said in done.output, done.output
    assert tiny.server.asked == []


def test_an_interruption_is_130_and_the_next_run_goes_on(tiny: Tiny) -> None:
    tiny.server.trouble, tiny.server.hanging = "/files/alpha", 1
    store = tiny.root.parent / "store"
    process = subprocess.Popen(
        [*GPUFLEET, "fetch", "--stack", "tiny", "--python", "3.12", "--set", git_mirror(tiny)],
        cwd=tiny.root,
        env={**os.environ, **environment(tiny, store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        part = waited_for(process, store)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "interrupted" in output
    assert not part.with_suffix("").exists()
    have = part.stat().st_size
    before = tiny.server.sent
    done = fetch(tiny, "--stack", "tiny", "--python", "3.12", "--set", git_mirror(tiny))
    assert done.returncode == 0, done.stdout
    assert part.with_suffix("").is_file() and not part.exists()
    whole = len(tiny.wheels["alpha-1.0-py3-none-any.whl"])
    assert 0 < have < whole and tiny.server.sent - before < whole


def waited_for(process: subprocess.Popen[Any], store: Path) -> Path:
    """The part of alpha's wheel, as soon as the half of it is there that the server sends."""
    while process.poll() is None:
        for path in store.glob("*/*/alpha-*.part"):
            if path.stat().st_size > 100_000:
                return path
        time.sleep(0.05)  # the server is of this process, and may have no thread of its own
    raise AssertionError("it ended before it was interrupted")


def test_a_named_stack_with_an_option_is_fetched_with_its_packages() -> None:
    def meant(options: list[str]) -> Runtime:
        (target,) = targets.of_stacks(["vllm-0.27.1"], [], ["3.12"], {"options": options})
        return target.runtime

    assert meant(["lmcache"]).stack.chosen == ("lmcache",)
    assert "lmcache==" in meant(["lmcache"]).stack.lock_text("3.12") and "lmcache==" not in meant([]).stack.lock_text(
        "3.12"
    )
    with pytest.raises(ConfigError, match="has no option 'lmcash'"):
        meant(["lmcash"])
