"""The peers: how each is told the desired state of some boxes, and the command that brings them to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.ansible import ANSIBLE_CFG, playbook
from benchmarks.desired import FILES, PACKAGES, Desired, write_files
from benchmarks.labs import Lab, cache_folder
from benchmarks.running import Command
from lab.engine import WHEEL
from lab.paths import REPOSITORY

PYINFRA = "from pyinfra_cli.main import main; main()"
GPUFLEET = "from gpufleet.cli import main; main()"
ANSIBLE = ("ansible-core>=2.19,<2.20", "mitogen==0.3.54")
INVENTORY = """\
from gpufleet.inventory import by_traits
boxes = {boxes!r}
globals().update(by_traits(boxes))
"""
# Waves are for the fleet's sake and the others have none: here all boxes at once.
GROUP_DATA = """\
rollout = {"canary": False, "batch": "100%", "max_unavailable": "100%"}
"""


@dataclass(frozen=True)
class Target:
    """A box as the peer reaches it; `value` is what an owner changes in one of its files."""

    name: str
    host: str
    port: int
    value: int


@dataclass(frozen=True)
class Bench:
    """Where a peer finds what it sends: + wheel, model: one file each, of the lab's stand-in engine"""

    lab: Lab
    work: Path
    known_hosts: Path

    @property
    def wheel(self) -> Path:
        return next((self.lab.where.www / "simple" / "vllm").glob("vllm-*-any.whl"))

    def key(self) -> str:
        return self.lab.record.ssh_key

    def folder(self, peer: str) -> Path:
        path = self.work / peer
        path.mkdir(parents=True, exist_ok=True)
        return path


def gpufleet(bench: Bench, targets: Sequence[Target]) -> Command:
    folder, record = bench.folder("gpufleet"), bench.lab.record
    for name in ("deploy.py", "config.py"):
        shutil.copy(REPOSITORY / name, folder / name)
    if not (folder / "files").exists():
        shutil.copytree(bench.lab.where.home / "catalogue", folder / "files")
        page = folder / "files" / "stacks" / "standin.yaml"
        _with(page, apt=list(PACKAGES))
        # How fast the stand-in talks is not what is measured, see also `serve_env`; the proof that it serves stays.
        page = folder / "files" / "models" / "standin.yaml"
        _with(page, gate={**yaml.safe_load(page.read_text())["gate"], "max_tokens": 16})
    data: dict[str, Any] = {
        "ssh_user": "root",
        "ssh_key": bench.key(),
        "ssh_known_hosts_file": str(bench.known_hosts),
        "mirrors": {"pypi": record.urls["pypi"], "torch": record.urls["pypi"]},
        "stack": "standin",
        "serve": ["standin"],
        "host": {"toolkit": "none"},
    }
    boxes = [
        (
            target.name,
            {
                "ssh_hostname": target.host,
                "ssh_port": target.port,
                **data,
                "serve_args": {"max-num-seqs": target.value},
                "serve_env": {"STANDIN_TOKEN_MS": "0"},
            },
        )
        for target in targets
    ]
    _write(folder / "group_data" / "all.py", GROUP_DATA)
    _write(folder / "inventory" / "home.py", INVENTORY.format(boxes=boxes))
    store = {"GPUFLEET_STORE": str(cache_folder() / "store")}
    command = [sys.executable, "-c", GPUFLEET, "deploy", "inventory/home.py", "-y"]
    return Command(command, folder, {"PYTHONPATH": str(REPOSITORY), "PYINFRA_PROGRESS": "off", **store})


def pyinfra(bench: Bench, targets: Sequence[Target]) -> Command:
    folder, desired = bench.folder("pyinfra"), Desired("pyinfra")
    data = {"ssh_user": "root", "ssh_key": bench.key(), "ssh_known_hosts_file": str(bench.known_hosts)}
    boxes = [
        (target.name, {"ssh_hostname": target.host, "ssh_port": target.port, "value": target.value, **data})
        for target in targets
    ]
    for value in {target.value for target in targets}:
        write_files(folder / str(value), desired, value)
    _payload(bench, folder)
    shutil.copy(Path(__file__).with_name("plain_deploy.py"), folder / "deploy.py")
    _write(folder / "inventory.py", f"boxes = {boxes!r}\n")
    command = [sys.executable, "-c", PYINFRA, "-y", "inventory.py", "deploy.py"]
    return Command(command, folder, {"PYTHONPATH": str(REPOSITORY), "PYINFRA_PROGRESS": "off"})


def ansible(bench: Bench, targets: Sequence[Target]) -> Command:
    return _ansible(bench, targets, "ansible", "")


def mitogen(bench: Bench, targets: Sequence[Target]) -> Command:
    (plugins,) = _ansible_environment().glob("lib/python3*/site-packages/ansible_mitogen/plugins/strategy")
    return _ansible(bench, targets, "mitogen", f"strategy_plugins = {plugins}\nstrategy = mitogen_linear\n")


def _ansible(bench: Bench, targets: Sequence[Target], peer: str, strategy: str) -> Command:
    folder, desired = bench.folder(peer), Desired(peer)
    for value in {target.value for target in targets}:
        write_files(folder / str(value), desired, value)
    _payload(bench, folder)
    hosts = {
        target.name: {"ansible_host": target.host, "ansible_port": target.port, "value": target.value}
        for target in targets
    }
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": bench.key(),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    _write(folder / "inventory.yaml", yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))
    _write(folder / "playbook.yaml", yaml.safe_dump(playbook(desired, folder), sort_keys=False))
    # Connections are made anew in each run, as those of the others are: no control socket of an earlier one is found.
    sockets = folder / "cp"
    shutil.rmtree(sockets, ignore_errors=True)
    _write(
        folder / "ansible.cfg", ANSIBLE_CFG.format(known_hosts=bench.known_hosts, sockets=sockets, strategy=strategy)
    )
    command = [str(_ansible_environment() / "bin" / "ansible-playbook"), "-i", "inventory.yaml", "playbook.yaml"]
    return Command(command, folder, {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"})


def floor(bench: Bench, targets: Sequence[Target]) -> Command:
    folder, desired = bench.folder("floor"), Desired("pyinfra")
    read = [
        f"dpkg-query -W {' '.join(PACKAGES)}",
        f"id {desired.user}",
        f"stat -c '%n %U %a' {' '.join(desired.directories)}",
        f"sha256sum {' '.join(f'{desired.root}/releases/1/{name}' for name in FILES)}",
        f"sha256sum /etc/systemd/system/{desired.unit}",
        f"readlink {desired.root}/current",
        f"ls {desired.venv}/bin",
        f"systemctl show -p ActiveState,UnitFileState {desired.unit}",
        "echo end",
    ]
    given = {
        "key": bench.key(),
        "known_hosts": str(bench.known_hosts),
        "command": "; ".join(read),
        "boxes": [[target.host, target.port] for target in targets],
    }
    _write(folder / "floor.json", json.dumps(given))
    command = [sys.executable, str(Path(__file__).with_name("floor.py")), "floor.json"]
    return Command(command, folder, {})


PEERS: dict[str, Callable[[Bench, Sequence[Target]], Command]] = {
    "floor": floor,
    "gpufleet": gpufleet,
    "pyinfra": pyinfra,
    "mitogen": mitogen,
    "ansible": ansible,
}


def _with(page: Path, **values: Any) -> None:
    page.write_text(yaml.safe_dump({**yaml.safe_load(page.read_text()), **values}, sort_keys=False))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _payload(bench: Bench, folder: Path) -> None:
    """The wheel of the runtime and the file of the model, as all peers send them."""
    for source in (bench.wheel, next((bench.lab.where.www / "models" / "standin").glob("*/config.json"))):
        if not (folder / source.name).exists():
            shutil.copy(source.resolve(), folder / source.name)
    assert (folder / WHEEL).exists()


def _ansible_environment() -> Path:
    """ansible-core and mitogen in an environment of their own, made once."""
    path = cache_folder() / f"ansible-{'-'.join(name.translate(str.maketrans('<>=,', '____')) for name in ANSIBLE)}"
    if not (path / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(path)], check=True)
        subprocess.run([str(path / "bin" / "pip"), "install", "--quiet", *ANSIBLE], check=True)
        (path / "complete").touch()
    return path
