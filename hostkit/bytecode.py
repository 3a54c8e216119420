"""The kit with its modules' byte code in it, made on the box: without, each call compiles what it imports.

Byte code is of one version of Python. Where that of the box changes, zipimport takes the sources, which stay in it.
"""

from __future__ import annotations

import importlib.util
import marshal
import shutil
import zipfile

from hostkit import driver
from hostkit.roots import Roots

# PEP 552: the hash of the source comes along, and nobody checks it
UNCHECKED = 1
WHEN = (1980, 1, 1, 0, 0, 0)  # always the same, so that two deploys at once write the same bytes
# as large as all of the kit, and not imported where there is no driver
OF_DRIVER = "pynvml.py"


def add(kit: str, copy: str) -> None:
    """Write a copy of the zip file `kit`; byte code is stored as it is, for it is read at every call."""
    with_driver = bool(driver.library_path(Roots()))
    shutil.copyfile(kit, copy)
    with zipfile.ZipFile(copy, "a") as archive:
        for name in archive.namelist():
            if name.endswith(".py") and (with_driver or name != OF_DRIVER):
                archive.writestr(zipfile.ZipInfo(name + "c", WHEN), _compiled(archive.read(name), name))


def _compiled(source: bytes, name: str) -> bytes:
    """A .pyc file; `name` is what tracebacks call it."""
    code = compile(source, name, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + UNCHECKED.to_bytes(4, "little") + importlib.util.source_hash(source)
    return header + marshal.dumps(code)
