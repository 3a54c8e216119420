"""A box that serves by hand: adopted, back to the old unit when the gate fails, moved, and given back as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import state
from tests.command import GPUFLEET, owners_folder, run
from tests.lab.clients import completes
from tests.lab.support import SmallLab, deploy, small_lab, started, wait_for
from tests.lab.test_removed import SNAPSHOT

pytestmark = [pytest.mark.lab, pytest.mark.large]  # a quarter of an hour

BOX, MAKER = "lab-1", "lab-2"
UNIT = "vllm.service"
MODEL = "/srv/models/lab-tiny"
ENGINE = "/srv/engine"
NAME = "qwen-local"
BY_HAND = {UNIT: ("active", "enabled")}
ALWAYS, NEVER = "This tiny model was ", "what it never says"  # of what the model answers
# As box B of the recipes is served, as far as a CPU and a tiny model have it: prefix caching of this architecture is
# Triton's, which there is none of.
FLAGS: dict[str, Any] = {
    "served-model-name": NAME,
    "max-model-len": 1024,
    "max-num-seqs": 1,
    "max-num-batched-tokens": 1024,
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
# The engine by hand makes its semaphores anew at each start.
SERVED = SNAPSHOT.replace("-path /proc", "-path /srv/ai -o -path /proc", 1).replace(
    "find /dev/shm -type f", "find /dev/shm -type f ! -name 'sem.mp-*'"
)


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
    until_it_serves(lab)
    return lab.sh(BOX, SERVED).splitlines()


@pytest.fixture(scope="module")
def folder(lab: SmallLab, by_hand: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    return owners_folder(path, lab.inventory({BOX: {"serve": []}}, own_models=True))


def root(lab: SmallLab, box: str) -> Path:
    return lab.where.boxes / box / "root"


def serves(lab: SmallLab) -> bool:
    return completes(f"{state.load(lab.where).box(BOX).address}:8000", NAME)


def until_it_serves(lab: SmallLab) -> None:
    """The engine is given the time that it takes where all of this machine is busy; else its last words are shown."""
    try:
        wait_for(lambda: serves(lab), 900)
    except AssertionError:
        pytest.fail(lab.sh(BOX, f"systemctl status --no-pager {UNIT}; tail -n 40 /var/log/vllm.log; true"))


def units(lab: SmallLab) -> dict[str, tuple[str, str]]:
    """(active, enabled) of the old unit and of what gpufleet has."""
    names = lab.sh(BOX, f"ls /etc/systemd/system | grep -E '^({UNIT}|gpufleet-lab-tiny.*service)$'").split()
    asked = "systemctl is-active {0}; systemctl is-enabled {0}; true"
    return {name: (found[0], found[1]) for name in names if (found := lab.sh(BOX, asked.format(name)).split())}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    verb, *rest = words
    return run(folder, verb, "inventory/home.py", *rest, program=GPUFLEET)


def names(lab: SmallLab) -> list[str]:
    with urllib.request.urlopen(
        f"http://{state.load(lab.where).box(BOX).address}:8000/v1/models", timeout=60
    ) as answer:
        return [item["id"] for item in json.load(answer)["data"]]


def carried(args: dict[str, Any]) -> dict[str, Any]:
    """The old unit's flags as these have them: a switch that is off may be written `no-…`, a mapping as JSON."""
    found = {}
    for key, value in FLAGS.items():
        has = args.get(key)
        if has is None and args.get(f"no-{key}") is True:
            has = False
        found[key] = json.loads(has) if isinstance(value, dict) and isinstance(has, str) else has
    return found


@dataclass(frozen=True)
class Adopted:
    """What `gpufleet adopt` said: + found: as JSON; + page: of the model, as it was written"""

    found: dict[str, Any]
    page: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.found["entry"]["model"])

    def gated(self, says: str) -> None:
        """Its gate wants to hear this; as the page is made, it asks what 17 + 25 is."""
        page = yaml.safe_load(self.text)
        gate = {**page.get("gate", {}), "expect": {"deterministic": True, "contains": says}}
        self.page.write_text(yaml.safe_dump({**page, "gate": gate}, sort_keys=False))


@pytest.fixture(scope="module")
def adopted(lab: SmallLab, folder: Path) -> Adopted:
    done = command(folder, "adopt", BOX, "--json", "--write")
    assert done.returncode == 0, done.stdout
    (found,) = json.loads(done.stdout[done.stdout.index("{") :])["services"]
    page = folder / "files/models" / f"{found['entry']['model']}.yaml"
    text = lab.inventory({BOX: {"serve": [found["entry"]]}}, own_models=True)
    (folder / "inventory/home.py").write_text(text)
    return Adopted(found, page, page.read_text())


def test_what_serves_is_found_and_the_same_is_planned(lab: SmallLab, folder: Path, adopted: Adopted) -> None:
    found, entry = adopted.found, adopted.found["entry"]
    assert found["adopted"] and entry["replaces"] == [UNIT] and entry["port"] == 8000, found
    assert carried(found["args"]) == FLAGS
    assert yaml.safe_load(adopted.text)["source"] == {"path": MODEL}
    done = command(folder, "plan", "--json")
    (instance,) = json.loads(done.stdout[done.stdout.index("{") :])["boxes"][0]["instances"]
    assert carried(instance["args"]) == FLAGS and instance["replaces"] == [UNIT]
    assert units(lab) == BY_HAND and serves(lab)


def test_a_gate_that_fails_brings_the_old_unit_back(lab: SmallLab, folder: Path, adopted: Adopted) -> None:
    adopted.gated(NEVER)
    done = deploy(folder)
    assert done.code == 1 and f"takes the place of {UNIT}" in done.output, done.output
    assert f"the instance is stopped; {UNIT} runs again" in " ".join(done.output.split()), done.output
    assert units(lab) == BY_HAND and serves(lab)


def test_a_gate_that_passes_moves_the_box(lab: SmallLab, folder: Path, adopted: Adopted) -> None:
    adopted.gated(ALWAYS)
    done = deploy(folder)
    assert done.code == 0, done.output
    assert units(lab) == moved(adopted) and serves(lab) and names(lab) == [NAME]
    home = root(lab, BOX) / "opt/gpufleet/instances" / adopted.name
    served = yaml.safe_load((home / (home / "current").readlink() / "serve.yaml").read_text())
    assert carried(served) == FLAGS
    assert (root(lab, BOX) / "etc/systemd/system" / UNIT).read_text() == TEXT
    done = deploy(folder)
    assert (done.code, done.state(BOX)) == (0, "serving, nothing to do"), done.output


def test_a_boot_brings_the_instance_and_not_the_unit(lab: SmallLab, adopted: Adopted) -> None:
    lab("kill", BOX)
    lab("start", BOX)
    until_it_serves(lab)
    assert units(lab) == moved(adopted)


def test_a_unit_that_is_started_again_is_drift(lab: SmallLab, folder: Path, adopted: Adopted) -> None:
    lab.sh(BOX, f"systemctl enable -q {UNIT}")
    done = deploy(folder)
    assert (done.code, done.state(BOX)) == (0, "serving, nothing to do"), done.output
    assert f"GF615 replaced-unit-runs: {UNIT} starts at boot, and {adopted.name} has its place" in done.output
    lab.sh(BOX, f"systemctl disable -q {UNIT}")


def test_out_again_the_box_is_as_it_was(lab: SmallLab, by_hand: list[str], folder: Path, adopted: Adopted) -> None:
    removed(lab, folder)
    assert units(lab) == BY_HAND
    assert lab.sh(BOX, SERVED).splitlines() == by_hand


@pytest.mark.parametrize("says", [NEVER, ALWAYS], ids=["put back", "gone on with"])
def test_a_power_cut_in_the_middle(lab: SmallLab, folder: Path, adopted: Adopted, says: str) -> None:
    """Both are enabled then, so the boot starts both; one of them serves in the end, and the other is off."""
    adopted.gated(says)
    process = started(folder, ["-y"])
    wait_for(lambda: (known(lab, adopted).get("activation") or {}).get("step") == "gating", 300)
    lab("kill", BOX)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    lab("start", BOX)
    wait_for(lambda: not known(lab, adopted).get("activation"), 600)
    until_it_serves(lab)
    assert units(lab) == (BY_HAND if says == NEVER else moved(adopted))
    if says == ALWAYS:
        done = deploy(folder)
        assert (done.code, done.state(BOX)) == (0, "serving, nothing to do"), done.output
    removed(lab, folder)
    assert units(lab) == BY_HAND


def removed(lab: SmallLab, folder: Path) -> None:
    """All of gpufleet is taken off the box, and the old unit serves."""
    done = command(folder, "remove", BOX, "--models", "--packages", "--yes")
    assert done.returncode == 0, done.stdout
    until_it_serves(lab)


def moved(adopted: Adopted) -> dict[str, tuple[str, str]]:
    return {f"gpufleet-{adopted.name}.service": ("active", "enabled"), UNIT: ("inactive", "disabled")}


def known(lab: SmallLab, adopted: Adopted) -> dict[str, Any]:
    """What the box remembers of the instance."""
    path = root(lab, BOX) / "var/lib/gpufleet/state.json"
    return dict(json.loads(path.read_text())["instances"].get(adopted.name, {})) if path.exists() else {}
