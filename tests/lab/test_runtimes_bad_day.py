"""Runtimes on a booted box on an owner's bad day: a verification that is killed, a /tmp that nothing runs from, folders
that services do not get to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.support import SmallLab, small_lab, wait_for
from tests.lab.test_runtimes import BOX, RUNTIMES, Workshop, ended

pytestmark = pytest.mark.lab

CACHE = "/var/cache/gpufleet/verify"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("brk", 88, ["cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def box(lab: SmallLab) -> Workshop:
    return Workshop(lab)


def verifications(box: Workshop) -> str:
    """The units of verifications that systemd has."""
    return box.lab.sh(BOX, "systemctl list-units --all --plain --no-legend 'run-*.service'")


@pytest.mark.parametrize("strike", ["systemctl kill --kill-whom=all -s KILL", "systemctl stop"])
def test_a_verification_ends_with_its_job(box: Workshop, strike: str) -> None:
    """It would hold the cards against the next one, for a quarter of an hour."""
    spec = box.spec("small-1", verify=["import time; time.sleep(600)"])
    process = box.start("job", {"verb": "runtime", "spec": spec})
    wait_for(lambda: "running" in verifications(box))
    box.lab.sh(BOX, f"{strike} 'gpufleet-job-*'")
    last, told = ended(process)
    assert last["event"] == "error" and "runtime did not end" in last["cause"], (last, told)
    wait_for(lambda: verifications(box) == "")
    assert box.runtimes() == [".small-1.building"] and box.jobs() == ""


def test_what_a_verification_compiles_runs_where_nothing_in_tmp_does(box: Workshop) -> None:
    box.lab.sh(BOX, "mount -t tmpfs -o noexec none /tmp")
    try:
        run = (
            "import os, shutil, subprocess; subprocess.run([shutil.copy('/bin/true', os.environ['HOME'])], check=True)"
        )
        spec = box.spec("small-1", verify=[run])
        spec["env"]["HOME"] = CACHE
        last, told = box.job(spec)
        assert last["event"] == "result", (last, told)
        assert box.lab.sh(BOX, f"ls -A $(dirname {CACHE})") == ""
    finally:
        box.lab.sh(BOX, "umount /tmp")


def test_a_folder_that_services_do_not_get_to_is_named_before_anything_is_installed(box: Workshop) -> None:
    box.lab.sh(BOX, "chmod 700 /opt")
    try:
        last, told = box.job(box.spec("small-2"))
    finally:
        box.lab.sh(BOX, "chmod 755 /opt")
    assert last.get("cause") == "the services' user gpufleet may not enter /opt (mode 0700)" and told == []
    assert last["remedy"] == "run `chmod o+x /opt` on the box, then deploy again"
    box.lab.sh(BOX, f"mkdir /home/big && mv {RUNTIMES} /home/big && ln -s /home/big/runtimes {RUNTIMES}")
    try:
        last, told = box.job(box.spec("small-2"))
    finally:
        box.lab.sh(BOX, f"rm {RUNTIMES} && mv /home/big/runtimes {RUNTIMES}")
    assert f"{RUNTIMES} leads to /home/big/runtimes, and services see nothing of /home" in last.get("cause", "")
    assert told == []
