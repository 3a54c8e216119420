"""The kit: the same bytes each time, all of hostkit in it, and it runs from the zip file."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hostkit
from gpufleet import kit
from operations import kit_scripts


def test_same_sources_same_bytes_whatever_their_age() -> None:
    first = kit.build()
    source = Path(hostkit.__file__).parent / "probe.py"
    stamp = source.stat()
    os.utime(source, (0, 0))
    try:
        assert kit.build() == first
    finally:
        os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def test_named_by_its_sources() -> None:
    built = kit.build()
    assert built.digest == hashlib.sha256(built.data).hexdigest()
    assert re.fullmatch(r"gpufleet-kit-[0-9a-f]{12}\.pyz", built.name)
    changed = [
        {**built.entries, "hostkit/probe.py": built.entries["hostkit/probe.py"] + b"\n"},
        {**built.entries, "hostkit/another.py": b""},
        {name: source for name, source in built.entries.items() if name != "hostkit/probe.py"},
    ]
    names = {kit.Kit(entries).name for entries in [built.entries, *changed]}
    assert len(names) == 4
    backwards = dict(reversed(built.entries.items()))
    assert kit.Kit(backwards).name == built.name and kit.Kit(backwards).data == built.data


def test_nothing_is_packed_for_a_box_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "_zip", lambda entries: pytest.fail("the kit was packed"))
    assert kit.build().name in kit_scripts.look("/kit", kit.build(), {})


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
