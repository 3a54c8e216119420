"""A fleet whose boxes serve a model of a stand-in of the hub, and what is counted of its bytes on the way."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from hostkit.pieces import PIECE
from lab import engine
from lab.hub import Hub, Mood, Repo
from tests.lab.rollouts import MODEL, Fleet
from tests.lab.support import Done, SmallLab, deploy, started, wait_for

REPO = "lab/random"
MODELS = "/opt/gpufleet/models"
MIB = 1 << 20


def shard(size: int) -> bytes:
    """A safetensors file with `size` random bytes as its one tensor."""
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    head = json.dumps({f"layers.{os.urandom(4).hex()}.weight": tensor}).encode()
    return len(head).to_bytes(8, "little") + head + os.urandom(size)


def checkpoint(shards: int, size: int) -> dict[str, bytes]:
    names = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    files = {name: shard(size) for name in names}
    index = {"metadata": {"total_size": shards * size}, "weight_map": {f"layers.{name}": name for name in names}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["config.json"] = json.dumps(engine.CONFIG).encode()
    return files


@dataclass
class ModelFleet:
    """+ env: of each deploy; the controller has a store of its own"""

    fleet: Fleet
    hub: Hub
    env: dict[str, str]
    files: dict[str, bytes] = field(default_factory=dict)
    revision: str = ""

    @property
    def lab(self) -> SmallLab:
        return self.fleet.lab

    @property
    def boxes(self) -> Sequence[str]:
        return self.fleet.boxes

    @property
    def total(self) -> int:
        return sum(map(len, self.files.values()))

    def publish(self, revision: str, shards: int, size: int) -> None:
        """Another checkpoint at the hub, and in the model's page."""
        self.revision, self.files = revision, checkpoint(shards, size)
        commit = hashlib.sha1(revision.encode(), usedforsecurity=False).hexdigest()
        self.hub.repos = {REPO: Repo(self.files, commit)}
        sums = {name: {"size": len(data), "sha256": sha256(data)} for name, data in self.files.items()}
        path = self.fleet.folder / "files" / "models" / f"{MODEL}.yaml"
        page = yaml.safe_load(path.read_text())
        source = {"hub": REPO, "commit": commit, "files": sums}
        path.write_text(yaml.safe_dump({**page, "revision": revision, "source": source}))

    def deploy(self, *boxes: str) -> Done:
        return deploy(self.fleet.folder, self._options(boxes), **self.env)

    def started(self, *boxes: str) -> subprocess.Popen[str]:
        return started(self.fleet.folder, self._options(boxes), **self.env)

    def _options(self, boxes: Sequence[str]) -> list[str]:
        return ["-y", *(word for box in boxes for word in ("--limit", box))]

    def outside(self) -> int:
        """Bytes that came from the hub."""
        return sum(self.hub.counts["sent"].values())

    def controller(self) -> int:
        """Bytes that this machine itself sent to boxes; what boxes send each other does not count."""
        return int(Path(f"/sys/class/net/{self.lab.where.bridge}/statistics/tx_bytes").read_text())

    def directory(self) -> str:
        return f"{MODELS}/{MODEL}/{self.revision}"

    def whole(self, *boxes: str) -> None:
        """The model is whole where it is served from: its files are right, and are the store's."""
        right = {f"{sha256(data)}  ./{name}" for name, data in self.files.items()}
        for box in boxes or self.boxes:
            script = f"cd {self.directory()} && find . -type f ! -name .gpufleet-complete -exec sha256sum {{}} +"
            assert set(self.lab.sh(box, script).splitlines()) == right, box
            assert self.lab.sh(box, f"find {self.directory()} -name '*.safetensors' -links -2") == "", box
            left = f"find {MODELS} -name '*.part' -o -name '*.holes' -o -name '*.incoming' -o -name '*.gone'"
            assert self.lab.sh(box, left) == "", box
            self.lab.sh(box, f"test -f {self.directory()}/.gpufleet-complete")

    def held(self, box: str) -> list[Path]:
        """The files in a box's store of models, and their parts, as this machine sees them."""
        store = self.fleet.root(box) / MODELS[1:] / ".store"
        return [path for path in store.glob("*/*") if path.is_file() and path.suffix != ".holes"]

    def bytes_on(self, boxes: Sequence[str]) -> int:
        return sum(size(path) for box in boxes for path in self.held(box))

    def kill_when(self, process: subprocess.Popen[str], what: Callable[[], bool]) -> None:
        """SIGKILL of the controller, in the middle."""
        wait_for(lambda: what() or process.poll() is not None, 120)
        assert process.poll() is None, process.communicate()[0]
        process.kill()
        process.communicate()

    def idle(self) -> None:
        """No box still takes what a controller that is gone sent."""
        for box in self.boxes:
            wait_for(partial(self._idle, box))

    def _idle(self, box: str) -> bool:
        return not {"receive", "pull"} & {word for line in self.lab.commands(box) for word in line}

    def doubt(self, box: str) -> None:
        """As `gpufleet models check` does it when a file is damaged."""
        kit = "glob.glob('/opt/gpufleet/kit/gpufleet-kit.pyz')[0]"
        call = f"import glob, sys; sys.path.insert(0, {kit}); from hostkit import model; "
        said = self.lab.sh(box, f"python3 -c {shlex.quote(f'{call}print(model.doubt({self.directory()!r}))')}")
        assert said == "True"

    def came(self, done: Done, box: str) -> dict[str, float]:
        """MiB by where they came from, as the run says it of a box; nothing where nothing came."""
        lines = [line for line in done.output.splitlines() if f"[{box}]" in line and "all files are here" in line]
        return {where: float(mib) for line in lines for mib, where in re.findall(r"([\d.]+) MiB from ([a-z ]+)", line)}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it got its final name
        return 0


def flip(path: Path, place: int | None = None) -> int:
    """Change one bit of a file, at a random byte; returns the bytes of the piece that it is in."""
    at = random.randrange(size(path)) if place is None else place
    with path.open("r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)[0]
        handle.seek(at)
        handle.write(bytes([byte ^ (1 << random.randrange(8))]))
    return min(PIECE, size(path) - at // PIECE * PIECE)


def slow(rate: int) -> Mood:
    return Mood("slow", times=10_000, rate=rate)
