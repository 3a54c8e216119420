"""A small lab for one test module, owners' inventories for its boxes, and the product run as a user runs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import boxes, nspawn, processes, state
from lab.paths import REPOSITORY, Settings, settings
from tests.command import PYINFRA, owners_folder

ROOTLESS = {"stack": "vllm-0.27.1-cpu", "serve": [], "host": {"toolkit": "none"}}
STANDIN = {"stack": "standin", "serve": ["standin"], "host": {"toolkit": "none"}}
INVENTORY = """\
from gpufleet.inventory import by_traits
boxes = {boxes!r}
globals().update(by_traits(boxes, models={models!r}))
"""


@dataclass(frozen=True)
class SmallLab:
    """Boxes of this module alone."""

    environment: dict[str, str]
    where: Settings

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """`python -m lab …`."""
        done = subprocess.run(
            [sys.executable, "-m", "lab", *arguments],
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def sh(self, box: str, script: str, code: int = 0) -> str:
        """Run a script on a box as root, whatever has become of its logins."""
        init = state.load(self.where).box(box).pid
        done = subprocess.run(
            ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{box}: {script}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def commands(self, box: str) -> list[tuple[str, ...]]:
        """The command lines that run on a box now."""
        found = (processes.read(pid) for pid in nspawn.members(self.where, box))
        return [process.arguments for process in found if process]

    def host_key(self, box: str) -> str:
        return " ".join(boxes.host_keys(self.where)[box].split()[:2])

    def inventory(self, boxes_data: dict[str, dict[str, Any]], *, own_models: bool = False) -> str:
        """An inventory of these boxes: root, the lab's key and mirrors, nothing to serve, but for what is given.

        + own_models: the owner's folder has all models, and the lab's are not known
        """
        lab = state.load(self.where)
        base: dict[str, Any] = {
            **ROOTLESS,
            "ssh_user": "root",
            "ssh_key": lab.ssh_key,
            "ssh_known_hosts_file": lab.known_hosts,
            "mirrors": self.mirrors(),
        }
        listed = [(name, {"ssh_hostname": lab.box(name).address, **base, **data}) for name, data in boxes_data.items()]
        models = [] if own_models else [str(Path(lab.model["catalogue"]).parent)]
        return INVENTORY.format(boxes=listed, models=models)

    def mirrors(self, **other: str) -> dict[str, str]:
        lab = state.load(self.where)
        urls = {name: lab.urls[name] for name in ("pypi", "cuda", "cuda_key")}
        return {**urls, "torch": lab.urls["pypi"], "cuda_key_fingerprint": lab.cuda_key_fingerprint, **other}

    def folder(self, path: Path, boxes_data: dict[str, dict[str, Any]]) -> Path:
        return owners_folder(path, self.inventory(boxes_data))

    def standin_folder(self, path: Path, boxes_data: dict[str, dict[str, Any]], **pages: str) -> Path:
        """The same with the stand-in engine, which each box serves: its stack, locks and model are the owner's own."""
        shutil.copytree(self.where.home / "catalogue", path / "files")
        return owners_folder(path, self.standin_inventory(boxes_data), **pages)

    def standin_inventory(self, boxes_data: dict[str, dict[str, Any]]) -> str:
        listed = {name: {**STANDIN, **data} for name, data in boxes_data.items()}
        return self.inventory(listed, own_models=True)


@contextlib.contextmanager
def small_lab(name: str, network: int, topologies: Sequence[str]) -> Iterator[SmallLab]:
    """A lab with a box for each topology, ended with the block; it shares the big one's cache."""
    environment = {
        **os.environ,
        "GPUFLEET_LAB_CACHE": str(settings().cache),
        "GPUFLEET_LAB_HOME": f"/var/lib/gpufleet-lab-test-{name}",
        "GPUFLEET_LAB_BRIDGE": f"gfl{name[:5]}",
        "GPUFLEET_LAB_NETWORK": f"10.213.{network}.0/24",
    }
    lab = SmallLab(environment, settings(environment))
    lab("down")  # what a killed run of these tests has left
    try:
        options = [word for topology in topologies for word in ("--topology", topology)]
        lab("up", str(len(topologies)), *options)
        yield lab
    finally:
        lab("down")


@dataclass(frozen=True)
class Done:
    """A run that ended: its exit code, what it said, and how often it asked."""

    code: int
    output: str

    def problem(self, box: str) -> str:
        """The one line of the report about this box: `BOX: cause. Remedy.`"""
        (line,) = [line for line in self.output.splitlines() if line.startswith(f"{box}: ")] or ["none"]
        assert re.fullmatch(rf"{box}: .+\. [A-Z].*\.", line), self.output
        assert "Traceback" not in self.output, self.output
        return line

    def state(self, box: str) -> str:
        """The last column of the report's table: failed, refused, changed, nothing to do."""
        rows = [line for line in self.output.splitlines() if re.match(rf"{box}\s", line)]
        assert len(rows) == 1, self.output
        return re.split(r"\s{2,}", rows[0].rstrip())[-1]


def deploy(folder: Path, options: Sequence[str] = (), **env: str) -> Done:
    """`pyinfra -y inventory/home.py deploy.py` without a terminal; `options` in place of -y."""
    with started(folder, options, **env) as process:
        output, _ = process.communicate(timeout=900)
    return Done(process.returncode, output)


def started(folder: Path, options: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYINFRA, *(options or ["-y"]), "inventory/home.py", "deploy.py"],
        cwd=folder,
        env=_environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def deploy_in_terminal(
    folder: Path, question: str, answer: str, seconds: float = 300, options: Sequence[str] = ("-y",)
) -> tuple[Done, int]:
    """The same in a terminal of its own, the question answered each time it comes; and how often it came."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PYINFRA, *options, "inventory/home.py", "deploy.py"],
        cwd=folder,
        env=_environment(COLUMNS="200", TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    said, asked, until = b"", 0, time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                block = os.read(ours, 65536)
            except OSError:  # what a terminal says when its last user is gone
                break
            said += block
            while said.count(question.encode()) > asked:
                asked += 1
                os.write(ours, answer.encode() + b"\n")
        process.wait(10)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode("utf-8", "replace")).replace("\r\n", "\n")
    return Done(process.returncode, plain), asked


def _environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "GPUFLEET_SUDO_PASSWORD"}
    return {**kept, "PYINFRA_PROGRESS": "off", "COLUMNS": "160", **more}


@contextlib.contextmanager
def command_lines() -> Iterator[Callable[[], set[str]]]:
    """Watches all command lines of this machine (the boxes' are among them) while the block runs."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            seen.update(" ".join(process.arguments) for process in processes.every())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: seen
    finally:
        over.set()
        thread.join()


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
