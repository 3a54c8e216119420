"""The kit: the same bytes each time, all of hostkit in it, and it runs from the zip file."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import hostkit
from gpufleet import kit


def test_same_sources_same_bytes_whatever_their_age() -> None:
    first = kit.build()
    source = Path(hostkit.__file__).parent / "probe.py"
    stamp = source.stat()
    os.utime(source, (0, 0))
    try:
        assert kit.build() == first
    finally:
        os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def test_named_by_its_content() -> None:
    built = kit.build()
    assert built.digest == hashlib.sha256(built.data).hexdigest()
    assert built.name == f"gpufleet-kit-{built.digest[:12]}.pyz"


def test_holds_every_module_of_hostkit_and_nothing_compiled() -> None:
    with zipfile.ZipFile(io.BytesIO(kit.build().data)) as archive:
        names = archive.namelist()
    package = Path(hostkit.__file__).parent
    modules = {f"hostkit/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")}
    assert set(names) == modules | {"__main__.py", "pynvml.py"}
    assert names == sorted(names)
    assert "hostkit/probe.py" in names


def test_probes_from_the_zip_file_with_nothing_else_installed(tmp_path: Path) -> None:
    file = tmp_path / "kit.pyz"
    file.write_bytes(kit.build().data)
    script = (
        f"import sys; sys.path.insert(0, {str(file)!r})\n"
        "import json, hostkit.probe, pynvml\n"
        "print(json.dumps([hostkit.__file__, pynvml.__file__, hostkit.probe.run({})]))\n"
    )
    # isolated, without site-packages: what the box's own python3 has
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    hostkit_file, pynvml_file, answer = json.loads(done.stdout)
    assert hostkit_file.startswith(str(file)) and pynvml_file.startswith(str(file))
    assert answer["facts"]["schema"] == 2
    assert answer["facts"]["cpu"]["threads"] >= 1
