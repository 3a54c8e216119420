"""A box that runtimes can be made on: a store with small wheels, the real uv, programs that stand in for systemd's."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import uv

from hostkit import files, reach, release, runtime, shell, state, store, toolkits, verify

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
UV_WHEEL = "uv-0.0.1-py3-none-manylinux_2_17_x86_64.whl"
# Runs the command, with the variables of the unit's EnvironmentFile and nothing else, from the unit's directory.
SYSTEMD_RUN = f"""\
#!{sys.executable}
import os, shlex, sys
words = sys.argv[1:]
command = words[words.index("--") + 1:]
properties = dict(w[len("--property="):].split("=", 1) for w in words if w.startswith("--property="))
with open({{told!r}}, "w") as handle:
    handle.write("\\n".join(words[: words.index("--")]))
env = dict(line.split("=", 1) for line in shlex.split(open(properties["EnvironmentFile"]).read()))
os.chdir("/")
os.execve(command[0], command, env)
"""


def wheel(name: str, version: str, contents: dict[str, str], requires: str = "") -> tuple[str, bytes]:
    """(file name, bytes) of a wheel."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    made = {
        **contents,
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: hashlib.sha256(text.encode()).digest() for path, text in made.items()}
    encoded = {path: base64.urlsafe_b64encode(digest).decode().rstrip("=") for path, digest in hashes.items()}
    record = "".join(f"{path},sha256={encoded[path]},{len(text.encode())}\n" for path, text in made.items())
    return f"{name}-{version}-py3-none-any.whl", zipped({**made, f"{info}/RECORD": record + f"{info}/RECORD,,\n"})


def zipped(contents: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return buffer.getvalue()


class Workshop:
    """The kit's tree below a temporary directory; `told` has the options systemd-run was called with."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.told = root / "systemd-run.txt"
        for module, name, value in (
            (files, "ROOT", "opt"),
            (runtime, "RUNTIMES", "opt/runtimes"),
            (store, "ROOT", "opt/store"),
            (state, "STATE", "state/state.json"),
            (state, "JOURNAL", "state/journal.jsonl"),
            (files, "STATE", "state"),
            (toolkits, "PARENT", "usr/local"),
            (verify, "SCRATCH", "scratch"),
        ):
            monkeypatch.setattr(module, name, str(root / value))
        monkeypatch.setattr(reach, "HIDDEN", ())  # it is below /tmp
        monkeypatch.setattr(release, "ensure_user", lambda: None)
        self.bin = root / "bin"
        self.program("setpriv", '#!/bin/sh\nshift 3; exec "$@"\n')  # as who runs the tests
        self.program("systemd-run", SYSTEMD_RUN.format(told=str(self.told)))
        base = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
        path = f"{self.bin}:{base}:/usr/bin:/bin"
        monkeypatch.setattr(shell, "ENVIRONMENT", {**shell.ENVIRONMENT, "PATH": path, "HOME": str(root)})
        self.uv = self.stock(
            UV_WHEEL, zipped({"uv-0.0.1.data/scripts/uv": f'#!/bin/sh\nexec {uv.find_uv_bin()} "$@"\n'})
        )

    def program(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def stock(self, filename: str, data: bytes) -> dict[str, Any]:
        """Put a file into the box's store."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = Path(store.path(filename, sha256))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"filename": filename, "sha256": sha256, "size": len(data)}

    def stored(self, item: dict[str, Any]) -> Path:
        return Path(store.path(item["filename"], item["sha256"]))

    def spec(self, *locked: dict[str, Any], more: tuple[dict[str, Any], ...] = (), **other: Any) -> dict[str, Any]:
        """A runtime of these files; `more` are in no lock."""
        every = [*locked, *more]
        versions = {item["sha256"]: item["filename"].split("-")[:2] for item in every}
        lock = "".join(
            f"{'=='.join(versions[item['sha256']])} \\\n    --hash=sha256:{item['sha256']}\n"
            f"    # {item['filename']} {item['size']}\n"
            for item in locked
        )
        return {
            "name": "engine-1",
            "python": PYTHON,
            "uv": {"filename": self.uv["filename"], "sha256": self.uv["sha256"]},
            "files": [self.uv, *every],
            "lock": lock,
            "toolkit": None,
            "archs": [],
            "gpus": 0,
            "compile": [],
            "compiled": None,
            "verify": [],
            "versions": dict(versions.values()),
            "env": {},
            "instances": [],
            "facts": {"stack": "engine"},
            **other,
        }

    def toolkit(self, version: str = "13.0") -> Path:
        """A toolkit whose nvcc copies its last argument: what a script makes of it is what is tested."""
        folder = self.root / "usr/local" / f"cuda-{version}"
        text = f'#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, release {version}, V0" || cat "$@"\n'
        self.program("nvcc", text, folder / "bin")
        return folder

    @property
    def runtimes(self) -> list[str]:
        """What lies there now, whatever its name."""
        return sorted(os.listdir(self.root / "opt/runtimes"))
