"""A box that serves by hand: adopted, back to the old unit when the gate fails, moved, and given back as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import state
from tests.command import GPUFLEET, owners_folder, run
from tests.lab.clients import completes
from tests.lab.support import Done, SmallLab, deploy, small_lab, wait_for
from tests.lab.test_removed import SNAPSHOT

pytestmark = pytest.mark.lab

BOX, MAKER = "lab-1", "lab-2"
UNIT = "vllm.service"
MODEL = "/srv/models/lab-tiny"
ENGINE = "/srv/engine"
NAME = "qwen-local"
# As box B of the recipes is served, as far as a CPU and a tiny model have it.
FLAGS: dict[str, Any] = {
    "served-model-name": NAME,
    "max-model-len": 1024,
    "max-num-seqs": 1,
    "max-num-batched-tokens": 1024,
    "enable-prefix-caching": True,
    "async-scheduling": False,
    "language-model-only": True,
    "enforce-eager": True,
    "distributed-executor-backend": "uni",
    "kv-cache-memory-bytes": 134217728,
    "chat-template-content-format": "string",
    "override-generation-config": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 1},
    "disable-uvicorn-access-log": True,
}
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
    "HF_ENDPOINT": "https://mirror.example.org",
}


def words() -> Iterator[str]:
    """The flags as one writes them into a unit."""
    for name, value in FLAGS.items():
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            text = f"'{json.dumps(value)}'" if isinstance(value, dict) else value
            yield f"--{name} {text}"


TEXT = f"""\
[Unit]
Description=Qwen by hand
After=network-online.target
Wants=network-online.target

[Service]
User=ai
WorkingDirectory=/srv/ai
{chr(10).join(f"Environment={key}={value}" for key, value in ENVIRONMENT.items())}
ExecStart={ENGINE}/bin/python -m vllm.entrypoints.openai.api_server --model {MODEL} --host 0.0.0.0 --port 8000 \\
  {" ".join(words())}
Restart=always
RestartSec=10
TimeoutStartSec=900
StandardOutput=append:/var/log/vllm.log
StandardError=append:/var/log/vllm.log

[Install]
WantedBy=multi-user.target
"""
# What serving by hand itself writes: compiled kernels below its user's home.
SERVED = SNAPSHOT.replace("-path /proc", "-path /srv/ai -o -path /proc", 1)


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("place", 66, ["cpu-only", "cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def by_hand(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The box with its own unit, user, log file, engine and model; what is on it then.

    The engine is the one that another box has, copied to where nobody of gpufleet's looks.
    """
    folder = lab.folder(tmp_path_factory.mktemp("maker"), {MAKER: {"serve": ["lab-tiny"]}})
    done = deploy(folder)
    assert done.code == 0, done.output
    (runtime,) = (root(lab, MAKER) / "opt/gpufleet/runtimes").glob("vllm-*")
    shutil.copytree(runtime, root(lab, BOX) / ENGINE[1:], symlinks=True)
    (model,) = (root(lab, MAKER) / "opt/gpufleet/models/lab-tiny").iterdir()
    shutil.copytree(model, root(lab, BOX) / MODEL[1:], ignore=shutil.ignore_patterns(".*"))
    packages = "python3-venv libnuma1 libgomp1 g++ python3-dev"
    lab.sh(
        BOX,
        f"""set -e
        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y {packages}
        useradd --system --home-dir /srv/ai --create-home ai
        chown -R ai:ai {MODEL} && touch /var/log/vllm.log && chown ai /var/log/vllm.log""",
    )
    (root(lab, BOX) / "etc/systemd/system" / UNIT).write_text(TEXT)
    lab.sh(BOX, f"systemctl daemon-reload && systemctl enable -q --now {UNIT}")
    wait_for(lambda: serves(lab), 300)
    return lab.sh(BOX, SERVED).splitlines()


@pytest.fixture(scope="module")
def folder(lab: SmallLab, by_hand: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    return owners_folder(path, lab.inventory({BOX: {"serve": []}}, own_models=True))


def root(lab: SmallLab, box: str) -> Path:
    return lab.where.boxes / box / "root"


def serves(lab: SmallLab) -> bool:
    return completes(f"{state.load(lab.where).box(BOX).address}:8000", NAME)


def units(lab: SmallLab) -> dict[str, tuple[str, str]]:
    """(active, enabled) of the old unit and of what gpufleet has."""
    names = lab.sh(BOX, f"ls /etc/systemd/system | grep -E '^({UNIT}|gpufleet-lab-tiny.*service)$'").split()
    asked = "systemctl is-active {0}; systemctl is-enabled {0}; true"
    return {name: (found[0], found[1]) for name in names if (found := lab.sh(BOX, asked.format(name)).split())}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    verb, *rest = words
    return run(folder, verb, "inventory/home.py", *rest, program=GPUFLEET)


def want(lab: SmallLab, folder: Path, entry: dict[str, Any]) -> None:
    text = lab.inventory({BOX: {"serve": [entry]}}, own_models=True)
    (folder / "inventory/home.py").write_text(text)


def again(lab: SmallLab, folder: Path) -> Done:
    done = deploy(folder)
    assert "Traceback" not in done.output, done.output
    return done


def names(lab: SmallLab) -> list[str]:
    with urllib.request.urlopen(
        f"http://{state.load(lab.where).box(BOX).address}:8000/v1/models", timeout=60
    ) as answer:
        return [item["id"] for item in json.load(answer)["data"]]


def gated(page: str, says: str) -> str:
    """The page of a model whose gate wants to hear this; as it is made, it asks what 17 + 25 is."""
    found = yaml.safe_load(page)
    gate = {**found.get("gate", {}), "expect": {"deterministic": True, "contains": says}}
    return yaml.safe_dump({**found, "gate": gate}, sort_keys=False)


def test_from_by_hand_to_the_fleet_and_back(lab: SmallLab, by_hand: list[str], folder: Path) -> None:
    # What serves is found, and the same entry said; the model stays where it is.
    done = command(folder, "adopt", BOX, "--json", "--write")
    assert done.returncode == 0, done.stdout
    (found,) = json.loads(done.stdout[done.stdout.index("{") :])["services"]
    entry = found["entry"]
    assert found["adopted"] and entry["replaces"] == [UNIT] and entry["port"] == 8000, found
    assert {key: found["args"].get(key) for key in FLAGS} == FLAGS
    page = folder / "files/models" / f"{entry['model']}.yaml"
    written = page.read_text()
    assert yaml.safe_load(written)["source"] == {"path": MODEL}
    want(lab, folder, entry)
    planned = command(folder, "plan", "--json")
    (instance,) = json.loads(planned.stdout)["boxes"][0]["instances"]
    assert {key: instance["args"].get(key) for key in FLAGS} == FLAGS and instance["replaces"] == [UNIT]
    assert units(lab) == {UNIT: ("active", "enabled")}  # nothing was touched

    # A gate that fails: the old unit serves again.
    page.write_text(gated(written, "what it never says"))
    done = again(lab, folder)
    assert done.code == 1 and f"takes the place of {UNIT}" in done.output, done.output
    assert f"the instance is stopped; {UNIT} runs again" in " ".join(done.output.split()), done.output
    assert units(lab) == {UNIT: ("active", "enabled")} and serves(lab)

    # One that passes: gpufleet serves on the port, with the same flags, and the old unit is off for good.
    page.write_text(gated(written, "This tiny model was "))
    done = again(lab, folder)
    assert done.code == 0, done.output
    name = instance["name"]
    assert units(lab) == {UNIT: ("inactive", "disabled"), f"gpufleet-{name}.service": ("active", "enabled")}
    assert serves(lab) and names(lab) == [NAME]
    current = (root(lab, BOX) / "opt/gpufleet/instances" / name / "current").readlink()
    served = yaml.safe_load((root(lab, BOX) / "opt/gpufleet/instances" / name / current / "serve.yaml").read_text())
    assert {key: served.get(key) for key in FLAGS if FLAGS[key] is not False} == {
        key: value for key, value in FLAGS.items() if value is not False
    }
    assert (root(lab, BOX) / "etc/systemd/system" / UNIT).read_text() == TEXT

    # The same again changes nothing; a boot brings the instance and not the unit.
    done = again(lab, folder)
    assert (done.code, done.state(BOX)) == (0, "serving, nothing to do"), done.output
    lab("kill", BOX)
    lab("start", BOX)
    wait_for(lambda: serves(lab), 300)
    assert units(lab) == {UNIT: ("inactive", "disabled"), f"gpufleet-{name}.service": ("active", "enabled")}

    # Out again: the old unit serves, and nothing of gpufleet is left.
    done_ = command(folder, "remove", BOX, "--models", "--packages", "--yes")
    assert done_.returncode == 0, done_.stdout
    wait_for(lambda: serves(lab), 300)
    assert units(lab) == {UNIT: ("active", "enabled")}
    assert lab.sh(BOX, SERVED).splitlines() == by_hand
