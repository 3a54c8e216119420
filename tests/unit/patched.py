"""An owner with a tiny stack whose wheel and source archive are patched."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpufleet import paths
from gpufleet.cli import main
from gpufleet.wheelhouse.source import content_digest
from tests.unit.repositories import commit

LINES = [f"line {number}\n" for number in range(1, 31)]
PATCH = """--- a/tiny/a.py
+++ b/tiny/a.py
@@ -4,3 +4,3 @@
 line 4
-line 5
+five
 line 6
@@ -20,3 +20,3 @@
 line 20
-line 21
+twenty-one
 line 22
"""
OFFLINE = ("--set", "fetch.offline=true")
SECOND = "--- a/tiny/b.py\n+++ b/tiny/b.py\n@@ -1 +1 @@\n-b = 1\n+b = 2\n"


def wheel(folder: Path, version: str, lines: list[str]) -> Path:
    """A wheel of `tiny` whose a.py has these lines."""
    path = folder / f"tiny-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
    info = f"tiny-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("tiny/a.py", "".join(lines))
        packed.writestr("tiny/b.py", "b = 1\n")
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp38-abi3-manylinux_2_28_x86_64\n")
        packed.writestr(f"{info}/RECORD", "")
    return path


class Owner:
    """A folder with one stack of a patched wheel and a patched source, an index, and a git mirror."""

    def __init__(self, root: Path) -> None:
        self.root, self.index = root, root / "index"
        self.published = wheel(self.index, "1.2", LINES)
        self.series({"0001-a.patch": PATCH, "0002-b.patch": SECOND})
        files = {"quick/__init__.py": b"b = 1\n"}
        at = commit(root / "mirror" / "x" / "quick", files)
        self.source = {
            "name": "quick",
            "version": "1",
            "git": "https://example.org/x/quick",
            "commit": at,
            "sha256": content_digest(files),
            "packages": ["quick"],
            "patches": "quick",
        }
        self.series({"0001-b.patch": SECOND.replace("tiny/b", "quick/__init__")}, "quick")
        self.wheel: dict[str, Any] = {
            "name": "tiny",
            "version": "1.2",
            "filename": self.published.name,
            "sha256": hashlib.sha256(self.published.read_bytes()).hexdigest(),
            "patches": "tiny",
        }
        self.page()

    def series(self, patches: dict[str, str], name: str = "tiny") -> None:
        folder = self.root / "files" / "patches" / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for patch, text in patches.items():
            (folder / patch).write_text(text)
        (folder / "series").write_text("".join(f"{patch}\n" for patch in patches))

    def page(self, **more: Any) -> None:
        said = {"schema": 1, "name": "tiny-sm75", "title": "tiny", "engine": "vllm", "python": ["3.12"]}
        said |= {"arch": ["sm75"], "wheels": [self.wheel], "sources": [self.source], **more}
        (self.root / "files" / "stacks").mkdir(parents=True, exist_ok=True)
        (self.root / "files" / "stacks" / "tiny-sm75.yaml").write_text(yaml.safe_dump(said))

    def check(self, *arguments: str) -> Result:
        mirror = f"mirrors.git=file://{self.root}/mirror/{{path}}"
        return CliRunner().invoke(main, ["patches", "check", *arguments, "--set", mirror])


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    found = Owner(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "product_files", lambda: tmp_path / "files")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GPUFLEET_STORE", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(found.index))
    return found
