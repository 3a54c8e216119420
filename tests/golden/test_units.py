"""Rendered units, whole: as files to be read, and as systemd itself reads them where its tools are.

`python -m tests.golden.test_units` writes the files anew; look at the difference.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpufleet.plan import Instance
from gpufleet.render import release
from gpufleet.starting import FILE, unit_name
from hostkit import host_state
from tests.unit.fleets import cpu_facts, model, plan
from tests.unit.test_reference_boxes import REFERENCE, reference

FOLDER = Path(__file__).parent / "units"
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def instances() -> dict[str, Instance]:
    home = model(source={"path": "/home/me/models/tiny"})
    found = {"cpu": plan(cpu_facts(), models=[home]).instances[0]}
    return found | {name.replace(" ", "-").lower(): reference(*REFERENCE[name][:3]) for name in ("A1 without", "B")}


INSTANCES = instances()


def rendered(instance: Instance) -> dict[str, str]:
    """The unit and the spec of its starts; the digest of the runtime, which is another with each lock, is left out."""
    files = release(instance).files
    runtime = instance.runtime.name
    short = re.sub(r"-[0-9a-f]{12}$", "-DIGEST", runtime)
    return {name: files[name].replace(runtime, short) for name in (unit_name(instance), FILE)}


def golden(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def whole(instance: Instance) -> str:
    return "".join(f"===== {name}\n{text}" for name, text in rendered(instance).items())


@pytest.mark.parametrize("name", INSTANCES)
def test_units_are_as_they_were_looked_at(name: str) -> None:
    assert whole(INSTANCES[name]) == golden(name).read_text(encoding="utf-8")


def test_the_unit_of_the_box_is_as_it_was_looked_at() -> None:
    assert host_state.unit_text() == golden("host").read_text(encoding="utf-8")


def analyze(*arguments: str) -> str:
    """What systemd-analyze says, both streams."""
    done = subprocess.run([str(ANALYZE), "--no-pager", *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@needs_systemd
@pytest.mark.parametrize("name", INSTANCES)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    """It looks for the program, too, which is put where this machine has one."""
    instance = INSTANCES[name]
    unit = tmp_path / unit_name(instance)
    text = release(instance).files[unit.name]
    program = f'"{instance.runtime.path}/bin/vllm"'
    assert text.count(program) == 1
    unit.write_text(text.replace(program, '"/bin/true"'))
    assert about(analyze("verify", "--man=no", str(unit)), unit.name) == []
    unit.write_text(unit.read_text().replace("KillMode=control-group", "KillMode=nonsense"))
    assert about(analyze("verify", "--man=no", str(unit)), unit.name), "it would say so"


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit_of_the_box(tmp_path: Path) -> None:
    unit = tmp_path / host_state.UNIT
    unit.write_text(host_state.unit_text())
    assert about(analyze("verify", "--man=no", str(unit)), unit.name) == []


def about(said: str, unit: str) -> list[str]:
    """The lines about this unit: a machine's own units are not ours to judge."""
    return [line for line in said.splitlines() if unit in line]


@needs_systemd
def test_a_service_is_shut_in(tmp_path: Path) -> None:
    """systemd's own measure of what a service might do beyond its work, 10 for a service that sets nothing."""
    unit = tmp_path / unit_name(INSTANCES["b"])
    unit.write_text(release(INSTANCES["b"]).files[unit.name])
    said = analyze("security", "--offline=true", "--threshold=100", str(unit))
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d)", said)
    assert found, said
    assert float(found.group(1)) < 5


if __name__ == "__main__":
    for key, each in INSTANCES.items():
        golden(key).write_text(whole(each), encoding="utf-8")
    golden("host").write_text(host_state.unit_text(), encoding="utf-8")
