"""Builds what is run on boxes: hostkit and NVML's Python module as one zip file that python3 runs as it is.

The same sources give the same bytes, so that its name tells whether a box has it already.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = "/opt/gpufleet/kit"  # on a box
NEWEST = f"{FOLDER}/gpufleet-kit.pyz"  # a link, which units call
_MAIN = "import sys\n\nfrom hostkit.__main__ import main\n\nsys.exit(main())\n"
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
_UNIX = 3


@dataclass(frozen=True)
class Kit:
    name: str
    digest: str  # sha256 of data
    data: bytes


def build() -> Kit:
    entries = {"__main__.py": _MAIN.encode(), "pynvml.py": _pynvml().read_bytes()}
    package = _hostkit()
    for path in package.rglob("*.py"):
        entries[f"hostkit/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    data = _zip(entries)
    digest = hashlib.sha256(data).hexdigest()
    return Kit(f"gpufleet-kit-{digest[:12]}.pyz", digest, data)


def _zip(entries: dict[str, bytes]) -> bytes:
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
