"""The probe asked on a box of the lab, and a box made odd while a test asks it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpufleet import facts
from lab import nvml, rootfs, state
from tests.lab.support import SmallLab

BOX = "lab-1"
SCENARIO = "dual-2080ti-nv2"
KIT = "/srv/kit.pyz"
# the probe through its functions, where a test wants another limit than NVML's 20 s or another kernel log
SCRIPT = """
import json, sys
sys.path.insert(0, "{kit}")
from hostkit import probe
from hostkit.roots import Roots
print(json.dumps({{"event": "result", **probe.run({spec}, Roots(**{roots}), nvml_seconds={seconds})}}))
"""
PACKAGE = """\
Package: {name}
Status: {status}
Priority: optional
Section: libs
Maintainer: nobody <nobody@example.org>
Architecture: amd64
Version: {version}
Filename: ./{name}_{version}_amd64.deb
Size: 1000
SHA256: {sha256}
Description: made up
"""


def probe(lab: SmallLab, environment: str = "", user: str = "root", spec: Any = None) -> dict[str, Any]:
    """The facts, as the kit's command prints them; always valid."""
    return answer(ssh(lab, f"env {environment} python3 {KIT} probe", json.dumps(spec or {}), user))


def probe_by_script(lab: SmallLab, seconds: float = 20, **roots: str) -> dict[str, Any]:
    script = SCRIPT.format(kit=KIT, spec={}, roots=roots, seconds=seconds)
    return answer(ssh(lab, "python3 -", script))


def ssh(lab: SmallLab, command: str, given: str, user: str = "root") -> str:
    """As a deploy comes to the box: what nsenter starts may do more than a container's root."""
    known = state.load(lab.where)
    options = ["-i", known.ssh_key, "-o", f"UserKnownHostsFile={known.known_hosts}", "-o", "BatchMode=yes"]
    call = ["ssh", *options, f"{user}@{known.box(BOX).address}", command]
    return subprocess.run(call, input=given, capture_output=True, text=True, check=True, timeout=120).stdout


def answer(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])["facts"]
    assert facts.problems(found) == []
    return found


def said(found: dict[str, Any]) -> dict[str, str]:
    return {error["source"]: error["message"] for error in found["errors"]}


@contextmanager
def faults(root: Path, **codes: Any) -> Iterator[None]:
    """The stand-in's functions that fail while the block runs."""
    text = root / "etc/gpufleet-lab/nvml.conf"
    whole = text.read_text()
    text.write_text(nvml.conf({**nvml.scenario(SCENARIO), "faults": codes}))
    try:
        yield
    finally:
        text.write_text(whole)


@contextmanager
def instead(lab: SmallLab, path: str, text: str, mode: int = 0o755) -> Iterator[None]:
    """Another file at this path of the box while the block runs; a link there is kept."""
    file = rootfs.root(lab.where, BOX) / path.lstrip("/")
    lab.sh(BOX, f"if [ -e {path} ]; then mv {path} {path}.kept; fi")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    try:
        yield
    finally:
        lab.sh(BOX, f"rm {path}; if [ -e {path}.kept ]; then mv {path}.kept {path}; fi")


@contextmanager
def driver_packages(root: Path, lab: SmallLab) -> Iterator[None]:
    """A driver's library from a repository that has a newer one by now, held; and a foreign package of a .run age."""
    status, repository = root / "var/lib/dpkg/status", root / "srv/repository"
    name, before = "libnvidia-compute-580", status.read_text()
    repository.mkdir(parents=True, exist_ok=True)
    package = PACKAGE.format(name=name, status="hold ok installed", version="580.159.03-1", sha256="0" * 64)
    offered = [
        PACKAGE.format(name=name, status="", version=f"580.{v}-1", sha256=v[0] * 64) for v in ("159.03", "173.02")
    ]
    (repository / "Packages").write_text("\n".join(text.replace("Status: \n", "") for text in offered))
    with instead(lab, "/etc/apt/sources.list.d/made-up.list", "deb [trusted=yes] file:/srv/repository ./\n", 0o644):
        status.write_text(f"{before.rstrip()}\n\n{package}")
        lab.sh(BOX, "apt-get update -o Dir::Etc::sourcelist=sources.list.d/made-up.list -o Dir::Etc::sourceparts=-")
        try:
            yield
        finally:
            status.write_text(before)
            lab.sh(BOX, "rm -rf /srv/repository /var/lib/apt/lists/*_srv_repository_*")
