"""Makes a hashed lock from its `.in` file.

`uv pip compile --generate-hashes` lists the hash of every file of a release, most of them for other systems: thousands
of lines nobody can review. This keeps the wheels that the stack's Python and platform can install. No address is
written: which index a box uses is the owner's matter, the hash says what must come from it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def directives(text: str) -> dict[str, list[str]]:
    """The `# gpufleet: key value` lines of an input file."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# gpufleet: "):
            key, value = line.removeprefix("# gpufleet: ").split(maxsplit=1)
            found.setdefault(key, []).append(value.strip())
    return found


def resolve(source: Path, find_links: list[str]) -> dict[str, Any]:
    """Ask uv for the set of versions and the wheels that fit, as a pylock document."""
    asked = directives(source.read_text())
    with tempfile.TemporaryDirectory() as folder:
        drop = Path(folder, "drop.txt")
        drop.write_text("".join(f"{name}\n" for name in asked.get("drop", [])))
        answer = Path(folder, "pylock.toml")
        command = ["uv", "pip", "compile", "--quiet", "--only-binary", ":all:", "--format", "pylock.toml"]
        command += ["--python-version", asked["python"][0], "--python-platform", asked["platform"][0]]
        command += ["--exclude-newer", asked["exclude-newer"][0], "--excludes", str(drop)]
        command += [part for name in asked.get("repacked", []) for part in ("--no-emit-package", name)]
        command += [part for folder in find_links for part in ("--find-links", folder)]
        subprocess.run([*command, "--output-file", str(answer), str(source)], check=True, stdout=subprocess.DEVNULL)
        return tomllib.loads(answer.read_text())


def render(source: Path, document: dict[str, Any]) -> str:
    """The lock's text: one requirement, one line per hash."""
    lines = [f"# Made from {source.name} by relock.py; do not edit."]
    for package in document["packages"]:
        hashes = sorted({wheel["hashes"]["sha256"] for wheel in package["wheels"]})
        lines.append(f"{package['name']}=={package['version']} \\")
        lines += [f"    --hash=sha256:{digest} \\" for digest in hashes[:-1]] + [f"    --hash=sha256:{hashes[-1]}"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a lock of this folder, without its suffix")
    parser.add_argument(
        "--find-links", action="append", default=[], metavar="FOLDER", help="a folder or page with further wheels"
    )
    call = parser.parse_args()
    source = HERE / f"{call.name}.in"
    if not source.is_file():
        sys.exit(f"{source}: no such file; the inputs are: {', '.join(sorted(p.stem for p in HERE.glob('*.in')))}")
    source.with_suffix(".txt").write_text(render(source, resolve(source, call.find_links)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
