"""The benchmark's own lab: boxes of the lab's kind, on a network of their own, and back to bare for each first run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import boxes, state
from lab.paths import REPOSITORY, Settings, settings

HOME = "/var/lib/gpufleet-lab-bench"
ENVIRONMENT = {"GPUFLEET_LAB_BRIDGE": "gflbench", "GPUFLEET_LAB_NETWORK": "10.213.60.0/24"}


@dataclass(frozen=True)
class Lab:
    environment: dict[str, str]
    where: Settings

    @property
    def record(self) -> state.Lab:
        return state.load(self.where)

    @property
    def boxes(self) -> list[state.Box]:
        return self.record.boxes

    def call(self, *arguments: str) -> None:
        """`python -m lab …`. Raises CalledProcessError."""
        command = [sys.executable, "-m", "lab", *arguments]
        subprocess.run(command, cwd=REPOSITORY, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def host_keys(self) -> dict[str, str]:
        return {name: " ".join(key.split()[:2]) for name, key in boxes.host_keys(self.where).items()}

    def on_boxes(self, names: Sequence[str], script: str) -> None:
        """Run a script on boxes, several at once. Raises CalledProcessError."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.sh(name, script), names))

    def sh(self, name: str, script: str) -> str:
        pid = self.record.box(name).pid
        command = ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-C", "sh", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cache_folder() -> Path:
    """What is made once and kept: ansible's environment, the controller's store of files."""
    return settings().cache / "bench"


@contextmanager
def lab(count: int, keep: bool) -> Iterator[Lab]:
    """A lab of `count` boxes, ended with the block unless it is to be kept for the next call."""
    environment = {
        **os.environ,
        "GPUFLEET_LAB_CACHE": str(settings().cache),
        "GPUFLEET_LAB_HOME": os.environ.get("GPUFLEET_BENCH_LAB", HOME),
        **ENVIRONMENT,
    }
    found = Lab(environment, settings(environment))
    try:
        found.call("up", str(count))
        yield found
    finally:
        if not keep:
            found.call("down")
