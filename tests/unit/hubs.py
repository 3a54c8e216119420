"""A model on a stand-in of the hub, for tests of how its files come to the controller."""

from __future__ import annotations

import functools
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpufleet import model_files
from gpufleet.models import Model
from gpufleet.settings import Settings
from gpufleet.wheelhouse import hub, large
from gpufleet.wheelhouse.download import Tally
from gpufleet.wheelhouse.items import Item
from gpufleet.wheelhouse.store import Store
from lab.hub import Hub, Repo
from tests.unit.fleets import model
from tests.unit.servers import sha256

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/tiny"
TOKEN = "hf_" + "Secret0123456789"
PIECE = 16 << 20
LARGE = "model.safetensors"  # of three pieces, the last one short


def content(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


@functools.cache
def checkpoint() -> dict[str, bytes]:
    return {
        "config.json": b'{"model_type": "qwen3"}',
        LARGE: content(1, 2 * PIECE + 12345),
        "sub/notes.txt": b"in a folder",
    }


def page(files: dict[str, bytes], **others: Any) -> Model:
    listed = {path: {"size": len(data), "sha256": sha256(data)} for path, data in files.items()}
    found = {"source": {"hub": REPO, "commit": COMMIT, "files": listed}} | others
    return model(**found)


@dataclass
class Bench:
    """A hub with one model, and a store."""

    root: Path
    files: dict[str, bytes] = field(default_factory=lambda: dict(checkpoint()))
    token: str = ""
    said: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.hub = Hub({REPO: Repo(self.files, COMMIT, self.token)})
        self.store = Store(self.root / "store")
        self.model = page(self.files)

    def only(self, path: str = LARGE) -> None:
        """The model has this file alone: each process that fetches one takes a second to start."""
        self.files = {path: self.files[path]}
        self.model = page(self.files)

    def settings(self, **others: Any) -> Settings:
        return Settings.model_validate({"mirrors": {"hub": self.hub.url}} | others)

    def ready(self, **others: Any) -> list[Item]:
        return model_files.ready(self.model, self.store, self.settings(**others), self.said.append, self.tally)

    def mend(self) -> list[Item]:
        items = model_files.items(self.model, self.settings().mirrors)
        return model_files.mend(items, self.store, self.settings().mirrors, self.said.append, self.tally)

    def item(self, path: str = LARGE) -> Item:
        return model_files.files(self.model, self.settings().mirrors)[path]

    def place(self, path: str = LARGE) -> Path:
        return self.store.path(self.item(path))

    def sent(self, path: str = LARGE) -> int:
        return self.hub.sent[f"{REPO}/{path}"]

    def whole(self) -> bool:
        """All files are in the store, right, readable for all, and nothing else is."""
        right = all(self.place(path).read_bytes() == data for path, data in self.files.items())
        modes = all(stat.S_IMODE(self.place(path).stat().st_mode) == 0o644 for path in self.files)
        left = [path for path in self.store.root.rglob("*") if path.name.endswith((".part", ".damaged"))]
        return right and modes and not left


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(large.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(hub, "TRIES", 3)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    found = Bench(tmp_path)
    with found.hub:
        yield found
