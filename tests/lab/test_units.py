"""Units by a real systemd: what is done before a start and after an end, as the services' user; the box's own settings.

The engine is a script that counts its starts where engines keep what they compiled.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.render import release
from hostkit import host_values
from tests.lab.support import SmallLab, deploy, small_lab, wait_for
from tests.unit.fleets import cpu_facts, plan

pytestmark = pytest.mark.lab
BOX = "lab-1"
UNIT = "gpufleet-tiny.service"
STATE = "/var/lib/gpufleet-tiny"
RESTART = f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}"  # with no start counted towards the limit
KIT = "/opt/gpufleet/kit"
NEWEST = f"cd {KIT} && ln -sfn $(ls -t gpufleet-kit-*.pyz | head -n 1) gpufleet-kit.pyz"  # what units name
ENGINE = f"""\
#!/bin/bash
mkdir -p "$VLLM_CACHE_ROOT" && echo start >> "$VLLM_CACHE_ROOT/kernels"
echo "user $(id -un), compiled $(wc -l < "$VLLM_CACHE_ROOT/kernels")"
test -f {STATE}/crash && rm {STATE}/crash && exit 1
trap 'exit 3' TERM
sleep infinity & wait
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("units", 87, ["dual-2080ti-nv2"]) as found:
        yield found


def said(lab: SmallLab) -> list[str]:
    return lab.sh(BOX, f"journalctl -q -o cat -u {UNIT}").splitlines()


def is_active(lab: SmallLab, unit: str = UNIT) -> bool:
    return lab.sh(BOX, f"systemctl is-active {unit} || :") == "active"


def compiled(lab: SmallLab) -> int:
    """How many starts the caches have seen."""
    lines = [line for line in said(lab) if "compiled" in line]
    return int(lines[-1].rsplit(" ", 1)[1]) if lines else 0


def test_the_box_is_set_as_far_as_a_container_lets_itself(lab: SmallLab, tmp_path: Path) -> None:
    lab.sh(BOX, "sed -i /lab-1/d /etc/hosts")
    wanted = {"toolkit": "none", "swappiness": 11, "overcommit_memory": 0, "governor": "performance"}
    folder = lab.folder(tmp_path, {BOX: {"host": wanted}})
    done = deploy(folder)
    assert done.code == 0, done.output
    assert done.state(BOX) == "changed"
    assert "put lab-1 into /etc/hosts" in done.output
    assert f"not set: swappiness: {host_values.READ_ONLY}" in done.output
    assert lab.sh(BOX, "tail -n 1 /etc/hosts") == "127.0.1.1\tlab-1"
    assert lab.sh(BOX, "systemctl is-enabled gpufleet-host.service") == "enabled"
    again = deploy(folder)
    assert (again.code, again.state(BOX)) == (0, "nothing to do"), again.output
    lab.sh(BOX, NEWEST)
    lab("kill", BOX)
    lab("start", BOX)
    wait_for(lambda: is_active(lab, "gpufleet-host.service"))
    assert "not set: swappiness: /proc/sys is read-only" in lab.sh(
        BOX, "journalctl -b -q -o cat -u gpufleet-host.service"
    )
    lab.sh(BOX, "systemctl disable -q gpufleet-host.service")
    drifted = deploy(folder)
    assert "install gpufleet-host.service: it is changed" in drifted.output
    assert lab.sh(BOX, "systemctl is-enabled gpufleet-host.service") == "enabled"
    assert deploy(folder).state(BOX) == "nothing to do"
    (tmp_path / "nothing").mkdir()
    nothing = deploy(lab.folder(tmp_path / "nothing", {BOX: {}}))
    assert "remove gpufleet-host.service" in nothing.output
    lab.sh(BOX, f"! test -e /etc/systemd/system/gpufleet-host.service && ! test -e {host_spec()}")


def host_spec() -> str:
    return "/var/lib/gpufleet/host.json"


def stage(lab: SmallLab) -> None:
    """A release as the kit stages it, an engine in the place of its runtime, its unit with a short wait."""
    made = release(plan(cpu_facts()).instances[0])
    question = json.dumps({"instance": "tiny", "digest": made.digest, "files": made.files})
    home, program = "/opt/gpufleet/instances/tiny", made.links["runtime"] + "/bin/vllm"
    lab.sh(
        BOX,
        f"""set -e
        {NEWEST} && cd {KIT}
        printf %s {shlex.quote(question)} | python3 gpufleet-kit.pyz release
        ln -sfn releases/{made.digest} {home}/current
        mkdir -p $(dirname {program}) {made.links["model"]}
        printf %s {shlex.quote(ENGINE)} > {program} && chmod 755 {program}
        sed s/RestartSec=10/RestartSec=1/ {home}/current/{UNIT} > /etc/systemd/system/{UNIT}
        systemctl daemon-reload && systemctl enable -q {UNIT}
        """,
    )


def test_a_service_is_its_own_user_and_starts_without_root(lab: SmallLab) -> None:
    stage(lab)
    lab.sh(BOX, "touch /dev/shm/vllm_offload_old.mmap && chown gpufleet /dev/shm/vllm_offload_old.mmap")
    lab.sh(BOX, "touch /dev/shm/vllm_offload_theirs.mmap")
    lab.sh(BOX, f"systemctl start {UNIT}")
    wait_for(lambda: any("compiled" in line for line in said(lab)))
    assert "user gpufleet, compiled 1" in said(lab)
    assert "removed what an ended engine left in /dev/shm: vllm_offload_old.mmap" in said(lab)
    assert lab.sh(BOX, "ls /dev/shm/*.mmap") == "/dev/shm/vllm_offload_theirs.mmap"
    link = lab.sh(BOX, "cd /opt/gpufleet/instances/tiny/current && readlink runtime model")
    assert link.splitlines()[1] == "/opt/gpufleet/models/tiny/r1"


def test_a_restart_that_was_asked_for_keeps_the_caches_whatever_the_engine_ends_with(lab: SmallLab) -> None:
    lab.sh(BOX, f"systemctl restart {UNIT}")
    wait_for(lambda: compiled(lab) == 2)
    assert not [line for line in said(lab) if "failed" in line and "start" in line]


def test_after_a_failed_start_caches_go_once(lab: SmallLab) -> None:
    lab.sh(BOX, f"touch {STATE}/crash && chown gpufleet {STATE}/crash && {RESTART}")
    wait_for(lambda: any(line.startswith("the last start failed (exit-code)") for line in said(lab)))
    wait_for(lambda: compiled(lab) == 1 and is_active(lab))
    assert [line for line in said(lab) if re.fullmatch(r"the start failed after \d+ s: exit-code 1", line)]
    lab.sh(BOX, f"touch {STATE}/crash && chown gpufleet {STATE}/crash && {RESTART}")
    wait_for(lambda: compiled(lab) == 3 and is_active(lab))


def test_a_start_that_gets_no_memory_names_the_card(lab: SmallLab) -> None:
    """The stand-in's card has 22528 MiB; more than that never gets free."""
    uuid = lab.sh(
        BOX, f"cd {KIT} && echo '{{}}' | python3 gpufleet-kit.pyz probe | grep -o 'GPU-[0-9a-f-]*' | head -n 1"
    )
    file = "/opt/gpufleet/instances/tiny/current/start.json"
    spec = json.loads(lab.sh(BOX, f"cat {file}"))
    wanted = json.dumps({**spec, "gpus": [{"uuid": uuid, "need_mib": 30_000}], "wait_seconds": 2})
    lab.sh(BOX, f"printf %s {shlex.quote(wanted)} > {file} && ({RESTART} || :)")
    wait_for(lambda: any(line.startswith("error: GPU 0 has ") for line in said(lab)))
    (line, *_) = [line for line in said(lab) if line.startswith("error: GPU 0 has ")]
    assert "30000 MiB are needed: no process that can be seen holds the rest" in line
    assert compiled(lab) == 3, "it was not started"
    lab.sh(
        BOX,
        f"printf %s {shlex.quote(json.dumps(spec))} > {file}; {RESTART}",
    )
    wait_for(lambda: compiled(lab) == 4 and is_active(lab))


def test_a_boot_brings_the_service_back(lab: SmallLab) -> None:
    lab("kill", BOX)
    lab("start", BOX)
    wait_for(lambda: is_active(lab))
    wait_for(lambda: compiled(lab) == 5)
