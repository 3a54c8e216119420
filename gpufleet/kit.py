"""Builds what is run on boxes: hostkit and NVML's Python module as one zip file that python3 runs as it is.

It is named by its sources, so that its name tells whether a box has it already; the same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = "/opt/gpufleet/kit"  # on a box
NEWEST = f"{FOLDER}/gpufleet-kit.pyz"  # a link, which units call
# A look is over when it has answered: neither is garbage looked for on the way, nor are modules taken apart at the end.
_MAIN = """\
import gc
import os
import sys

look = sys.argv[1:] == ["probe"]
if look:
    gc.disable()

from hostkit.__main__ import main

status = main()
if look:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
sys.exit(status)
"""
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
_UNIX = 3


@dataclass(frozen=True)
class Kit:
    """`entries`: source by name in the zip file. Packed only when it is sent: most runs need no more than its name."""

    entries: Mapping[str, bytes]

    @cached_property
    def name(self) -> str:
        digest = hashlib.sha256()
        for name, source in sorted(self.entries.items()):
            digest.update(f"{name} {len(source)}\n".encode() + source)
        return f"gpufleet-kit-{digest.hexdigest()[:12]}.pyz"

    @cached_property
    def data(self) -> bytes:
        """The zip file."""
        return _zip(self.entries)

    @cached_property
    def digest(self) -> str:
        """sha256 of `data`."""
        return hashlib.sha256(self.data).hexdigest()


def build() -> Kit:
    entries = {"__main__.py": _MAIN.encode(), "pynvml.py": _pynvml().read_bytes()}
    package = _hostkit()
    for path in package.rglob("*.py"):
        entries[f"hostkit/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    return Kit(entries)


def _zip(entries: Mapping[str, bytes]) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            # ZipInfo takes both from the system it runs on
            entry.create_system, entry.external_attr = _UNIX, _READABLE
            archive.writestr(entry, entries[name], zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _hostkit() -> Path:
    spec = importlib.util.find_spec("hostkit")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package hostkit is not installed beside gpufleet: reinstall gpufleet")
    return Path(spec.origin).parent


def _pynvml() -> Path:
    """The module of the distribution nvidia-ml-py: others install a pynvml too."""
    try:
        distribution = importlib.metadata.distribution("nvidia-ml-py")
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeError("the package nvidia-ml-py is not installed: reinstall gpufleet") from None
    return Path(str(distribution.locate_file("pynvml.py")))
