"""`gpufleet fetch` of models as a user calls it: by name, by inventory, in an archive; killed and called again."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from gpufleet import known, model_files
from gpufleet.settings import Settings
from gpufleet.wheelhouse.store import Store
from lab.hub import Mood
from tests.command import GPUFLEET, owners_folder, run
from tests.unit.fleets import cpu_facts
from tests.unit.hubs import LARGE, PIECE, REPO, TOKEN, Bench, page
from tests.unit.tiny_stack import Tiny, tiny

__all__ = ["tiny"]

# A deploy's process is gevent's: one thread, in which everything else waits for what does not give way.
DEPLOY = """
import pyinfra_cli, sys
from pathlib import Path
import gevent, yaml
from gpufleet import model_files
from gpufleet.models import Model
from gpufleet.settings import Settings
from gpufleet.wheelhouse.store import Store
beats = []
def beat():
    while True:
        beats.append(0)
        gevent.sleep(0.05)
gevent.spawn(beat)
page = Model.model_validate(yaml.safe_load(Path("files/models/served.yaml").read_text()))
model_files.ready(page, Store(Path(sys.argv[1])), Settings(), print)
print("beats:", len(beats))
"""
SLOW = 8e6  # bytes per second of each connection
INVENTORY = """
from gpufleet.inventory import by_traits
boxes = [("one", {"ssh_hostname": "127.0.0.1", "serve": ["served"], "stack": "tiny"})]
globals().update(by_traits(boxes))
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("GPUFLEET_STORE", str(tmp_path / "store"))
    found = Bench(tmp_path)
    write(tmp_path / "mine", found)
    with found.hub:
        monkeypatch.setenv("HF_ENDPOINT", found.hub.url)
        yield found


def write(owner: Path, bench: Bench) -> None:
    folder = owner / "files" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    bench.model = page(bench.files, name="served", served_name="served")
    found = bench.model.model_dump(mode="json", exclude_unset=True, by_alias=True)
    (folder / "served.yaml").write_text(yaml.safe_dump(found))


def fetch(bench: Bench, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run(bench.root / "mine", "fetch", *arguments, program=GPUFLEET, **env)


def test_a_model_by_name_then_nothing_more_then_what_was_damaged(bench: Bench) -> None:
    done = fetch(bench, "--model", "served")
    assert done.returncode == 0 and bench.whole(), done.stdout
    assert "model served" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("3 of them (32.0 MiB) came from outside")
    again = fetch(bench, "--model", "served")
    assert again.returncode == 0 and "reading 3 files" in again.stdout and "0 of them (0 KiB)" in again.stdout
    with bench.place().open("r+b") as handle:
        handle.seek(PIECE)
        handle.write(bytes(4))
    bench.hub.sent.clear()
    mended = fetch(bench, "--model", "served")
    assert mended.returncode == 0 and f"{LARGE} was damaged: 16 MiB of 32 MiB are fetched anew" in mended.stdout
    assert bench.whole() and bench.hub.sent.total() == PIECE


def test_the_mirror_of_the_folder_is_asked_unless_a_setting_of_the_call_is_another(bench: Bench) -> None:
    group_data = bench.root / "mine" / "group_data"
    group_data.mkdir()
    (group_data / "all.py").write_text('mirrors = {"hub": "http://127.0.0.1:9"}\n')
    done = fetch(bench, "--model", "served", "--set", f"mirrors.hub={bench.hub.url}")
    assert done.returncode == 0 and bench.whole(), done.stdout
    (group_data / "all.py").write_text(f'mirrors = {{"hub": "{bench.hub.url}"}}\n')
    bench.place("config.json").unlink()
    done = fetch(bench, "--model", "served", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0 and bench.whole(), done.stdout


def test_an_archive_carries_models(bench: Bench) -> None:
    assert fetch(bench, "--model", "served", "--archive", "all.tar").returncode == 0
    asked = bench.hub.requests.total()
    there = fetch(bench, "--from", "all.tar", GPUFLEET_STORE=str(bench.root / "other"))
    assert (there.returncode, there.stdout) == (0, f"3 files in {bench.root}/other, 3 of them new\n")
    store, offline = Store(bench.root / "other"), Settings.model_validate({"fetch": {"offline": True}})
    items = model_files.ready(bench.model, store, offline, print)
    assert [store.pieces(item) for item in items] == [bench.store.pieces(item) for item in items]
    assert bench.hub.requests.total() == asked


def test_an_inventory_names_its_models(bench: Bench, tiny: Tiny) -> None:
    owner = tiny.root
    mirrors = {"pypi": f"{tiny.server.url}/simple", "git": f"file://{owner}/git/{{path}}", "hub": bench.hub.url}
    owners_folder(owner, INVENTORY, group_data__all=f"mirrors = {mirrors!r}\n")
    assert known.keep(owner / "inventory" / "facts" / "home", "one", cpu_facts())
    write(owner, bench)
    env = {"HF_ENDPOINT": "http://127.0.0.1:1"}  # the setting is stronger
    done = run(owner, "fetch", "inventory/home.py", program=GPUFLEET, **env)
    assert done.returncode == 0 and bench.whole(), done.stdout
    assert "tiny, Python" in done.stdout and "model served" in done.stdout
    again = run(owner, "fetch", "inventory/home.py", program=GPUFLEET, **env)
    assert "reading" not in again.stdout and "0 of them" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "serve"), "did you mean 'served'?"),
        (("--model", "qwen3-0.6b"), "--model qwen3-0.6b: it is on its boxes, in /srv/models/Qwen3-0.6B"),
        (("inventory/home.py", "--model", "served"), "not both"),
        (("--model", "served", "--python", "3.11"), "--python is for --stack"),
        (("--model", "served", "--set", "mirrors.hub=ftp://m"), "mirrors.hub"),
    ],
)
def test_a_wrong_call_is_2_and_asks_nobody(bench: Bench, arguments: tuple[str, ...], said: str) -> None:
    done = fetch(bench, *arguments)
    assert done.returncode == 2 and said in done.stdout, done.stdout
    assert bench.hub.requests.total() == 0


def test_what_cannot_be_had_is_1(bench: Bench) -> None:
    bench.hub.repos[REPO].token = TOKEN
    done = fetch(bench, "--model", "served", HF_TOKEN="hf_WrongButSecret123")
    assert done.returncode == 1 and "set HF_TOKEN on this controller" in done.stdout
    assert "WrongButSecret" not in done.stdout


def started(bench: Bench, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*GPUFLEET, "fetch", "--model", "served"],
        cwd=bench.root / "mine",
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children(pid: int) -> list[int]:
    """The processes that fetch."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in path.read_text().split()]
    return [each for each in found if b"gpufleet.hub_child" in command(each)]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def when(process: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    while not true():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@pytest.mark.parametrize("whom", ["controller", "child"])
def test_killed_at_random_points_nothing_starts_again_from_zero(bench: Bench, whom: str) -> None:
    bench.hub.moods = [Mood("slow", "", times=1000, rate=SLOW)]
    part = bench.place().with_name(LARGE + ".part")
    size = len(bench.files[LARGE])
    points = sorted(random.Random(whom).sample(range(size - PIECE // 4), 4))
    process = started(bench)
    try:
        for number, point in enumerate(points):
            when(process, lambda at=point, pid=process.pid: length(part) >= at and bool(children(pid)))  # type: ignore[misc]
            busy = children(process.pid)
            before = length(part)
            if whom == "child":
                for pid in busy:
                    os.kill(pid, signal.SIGKILL)
            else:
                process.kill()
                process.communicate()
                while any(command(pid) for pid in busy):  # who started them is gone, so they go, too
                    time.sleep(0.01)
                assert before <= length(part) < size
                process = started(bench)
            assert bench.sent() < size + (number + 1) * PIECE
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and bench.whole(), output
    assert size <= bench.sent() < size + len(points) * PIECE // 4
    if whom == "child":
        assert "the process that fetches ended" in output


def test_an_interruption_is_130_and_leaves_no_process(bench: Bench) -> None:
    bench.hub.moods = [Mood("stall", LARGE, at=PIECE)]
    process = started(bench)
    try:
        when(process, lambda: length(bench.place().with_name(LARGE + ".part")) >= PIECE)
        busy = children(process.pid)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "interrupted" in output
    while any(command(pid) for pid in busy):
        time.sleep(0.01)
    assert fetch(bench, "--model", "served").returncode == 0
    assert bench.whole() and bench.sent() == len(bench.files[LARGE])


def test_a_token_is_in_no_process_list_and_in_nothing_that_is_said(bench: Bench) -> None:
    bench.hub.repos[REPO].token = TOKEN
    bench.hub.moods = [Mood("stall", LARGE, at=PIECE), Mood("status", LARGE, status=500)]
    process = started(bench, HF_TOKEN=TOKEN, GPUFLEET_STALL_SECONDS="6", HF_DEBUG="1")
    try:
        when(process, lambda: length(bench.place().with_name(LARGE + ".part")) >= PIECE)
        listed = b"".join(command(pid) for pid in [process.pid, *children(process.pid)])
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and bench.whole(), output
    assert b"hub_child" in listed and TOKEN.encode() not in listed
    assert re.search(r"nothing came for 6 s|less than 64 KiB came", output) and TOKEN not in output
    assert not bench.hub.leaked


def test_a_deploy_goes_on_meanwhile(bench: Bench) -> None:
    bench.hub.moods = [Mood("slow", "", times=1000, rate=SLOW), Mood("cut", LARGE, at=PIECE + 5)]
    done = run(bench.root / "mine", str(bench.root / "store"), program=[sys.executable, "-c", DEPLOY])
    assert done.returncode == 0 and bench.whole(), done.stdout
    assert int(done.stdout.rpartition("beats: ")[2]) > 20  # of some 80 while 32 MiB come with 8 MB/s
