"""The stand-in engine as a box gets it: a wheel of lab/standin, a stack's page with a lock, a model with its page.

With it a first deploy takes seconds and a box some 20 MB of memory, so that many boxes can be rolled out, and a release
can be as bad as a test wants (lab/standin/moods.py). All of it goes the product's way: nothing there knows of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpufleet.wheelhouse.pack import add, add_record
from lab import cache, wheelhouse
from lab.paths import REPOSITORY, Settings
from lab.standin.server import VERSION

NAME = "standin"  # of the stack and of the model
MODULE = "vllm_standin"
PYTHONS = ("3.11", "3.10", "3.12", "3.13")
WHEEL = f"vllm-{VERSION}-py3-none-any.whl"
SOURCE = Path(__file__).resolve().parent / "standin"
METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\nSummary: A stand-in for vLLM\n"
INFO = {
    "METADATA": METADATA,
    "WHEEL": "Wheel-Version: 1.0\nGenerator: gpufleet lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": f"[console_scripts]\nvllm = {MODULE}.cli:main\n",
}
CONFIG = {"architectures": ["StandIn"], "model_type": "standin", "max_position_embeddings": 2048}
TIMEOUT = 60  # seconds to the first completion; it takes one


def build(settings: Settings) -> Path:
    """The directory with the wheel and the model; made anew when its sources change."""
    sources = {path.name: cache.file_digest(path) for path in [*SOURCE.glob("*.py"), Path(__file__)]}

    def make(directory: Path) -> None:
        wheel(directory / WHEEL)
        (directory / "model").mkdir()
        (directory / "model" / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")

    return cache.once(settings.cache, "engine", sources, make)


def wheel(path: Path) -> None:
    """The same bytes each time."""
    stem = f"vllm-{VERSION}"
    with zipfile.ZipFile(path, "w") as packed:
        rows = [add(packed, f"{MODULE}/{file.name}", file.read_bytes()) for file in sorted(SOURCE.glob("*.py"))]
        rows += [add(packed, f"{stem}.dist-info/{name}", text.encode()) for name, text in INFO.items()]
        add_record(packed, stem, rows)


def with_index(settings: Settings, simple: Path, built: Path) -> Path:
    """A package index of all that `simple` has, and the wheel."""

    def make(directory: Path) -> None:
        wheelhouse.write_index({built / WHEEL: cache.file_digest(built / WHEEL)}, directory)
        for project in sorted(path for path in simple.iterdir() if path.is_dir()):
            (directory / project.name).symlink_to(Path("..", simple.name, project.name))

    return cache.once(settings.cache, "simple", {"of": [simple.name, built.name]}, make)


def pages(built: Path, base_url: str, files: Path = REPOSITORY / "files") -> dict[str, str]:
    """An owner's `files`, by path in it: the stack, a lock for each Python, the model. + base_url: where models are"""
    config = (built / "model" / "config.json").read_bytes()
    digest = hashlib.sha256(config).hexdigest()
    file = {"config.json": {"size": len(config), "sha256": digest}}
    locks = {f"locks/{NAME}-py{python.replace('.', '')}.txt": lock(built) for python in PYTHONS}
    model = model_page(digest[:12], f"{base_url.rstrip('/')}/{NAME}/{digest[:12]}/", file)
    return {f"stacks/{NAME}.yaml": _yaml(stack_page(files)), f"models/{NAME}.yaml": _yaml(model), **locks}


def stack_page(files: Path) -> dict[str, Any]:
    """It is installed by the uv of the CPU stack, whose wheel the index has."""
    of_cpu = yaml.safe_load((files / "stacks" / "vllm-0.27.1-cpu.yaml").read_text())
    return {
        "schema": 1,
        "name": NAME,
        "title": "A stand-in for vLLM 0.27.1, without a model",
        "engine": "vllm",
        "flags": "vllm-0.27.1",
        "python": list(PYTHONS),
        "arch": ["cpu"],
        "uv": of_cpu["uv"],
        "lock": NAME,
        "verify": [f"import {MODULE}.cli"],
        "log": {
            "promised": [{"line": r"KV cache size: [\d,]+ tokens", "means": "the engine did not get ready"}],
            "forbidden": [{"line": "Unknown vLLM environment variable", "means": "a variable has no effect"}],
        },
    }


def lock(built: Path) -> str:
    path = built / WHEEL
    return (
        "# Lock of the lab's stand-in engine, made with the lab.\n"
        f"vllm=={VERSION} \\\n    --hash=sha256:{cache.file_digest(path)}\n    # {WHEEL} {path.stat().st_size}\n"
    )


def model_page(revision: str, url: str, files: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": NAME,
        "title": "The model that the stand-in engine does not look at",
        "revision": revision,
        "source": {"http": url, "files": dict(files)},
        "served_name": NAME,
        "args": {
            "max-model-len": CONFIG["max_position_embeddings"],
            "language-model-only": True,
            "speculative-config": {"method": "mtp", "num_speculative_tokens": 1},
            "enable-auto-tool-choice": True,
            "tool-call-parser": "qwen3_coder",
        },
        "gate": {"expect": {"deterministic": True, "contains": "42"}, "accepted": True, "timeout": TIMEOUT},
    }


def write(pages: Mapping[str, str], folder: Path) -> None:
    """Write pages below a folder, each whole."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}-{os.getpid()}")
        aside.write_text(text)
        aside.replace(path)


def _yaml(page: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(page), sort_keys=False, width=120)
