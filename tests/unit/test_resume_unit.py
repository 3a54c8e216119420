"""The unit that finishes what was cut off: written once, put right when it differs, calling the kit by its link."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostkit import files, releases, resume_unit
from hostkit.roots import Roots
from tests.unit.activation_box import Machine, make


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return make(tmp_path, monkeypatch)


def test_it_is_written_only_when_it_differs(machine: Machine) -> None:
    unit = machine.root / "units" / resume_unit.NAME
    resume_unit.install()
    assert f"ExecStart={sys.executable} {resume_unit.KIT} resume\n" in unit.read_text()
    assert "RestartPreventExitStatus=2\n" in unit.read_text()
    assert machine.asked == [] and machine.units[resume_unit.NAME]["enabled"]
    written = unit.stat().st_ino
    resume_unit.install()
    assert unit.stat().st_ino == written
    unit.write_text("[Unit]\n")
    resume_unit.install()
    assert "oneshot" in unit.read_text()
    (machine.root / "units/multi-user.target.wants" / resume_unit.NAME).unlink()
    resume_unit.install()
    assert (machine.root / "units/multi-user.target.wants" / resume_unit.NAME).is_symlink()


def test_the_kits_link_is_made_where_it_leads_nowhere(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine.root / "kit"
    folder.mkdir()
    for name in ("gpufleet-kit-1.pyz", "gpufleet-kit-2.pyz"):
        (folder / name).write_text("")
    monkeypatch.setattr(sys, "argv", [str(folder / "gpufleet-kit-1.pyz")])
    resume_unit.install()
    assert os.readlink(resume_unit.KIT) == "gpufleet-kit-1.pyz"
    monkeypatch.setattr(sys, "argv", [str(folder / "gpufleet-kit-2.pyz")])
    resume_unit.install()  # whoever sends a newer kit sets the link
    assert os.readlink(resume_unit.KIT) == "gpufleet-kit-1.pyz"
    (folder / "gpufleet-kit-1.pyz").unlink()
    resume_unit.install()
    assert os.readlink(resume_unit.KIT) == "gpufleet-kit-2.pyz"


def test_units_that_are_no_instances(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for name in ("resume", "host", "tiny"):
        (units / f"gpufleet-{name}.service").write_text("")
    assert releases.instance_names(Roots(str(tmp_path))) == ["tiny"]


def test_systemd_reads_it(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.write_text("")
    unit = tmp_path / resume_unit.NAME
    text = resume_unit.TEXT.format(root=files.ROOT, state=files.STATE, python=sys.executable, kit=kit)
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert resume_unit.NAME not in done.stderr and done.returncode == 0
