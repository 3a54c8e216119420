"""A folder that `gpufleet init` made is deployed as the repository is: from a checkout, and from an installed wheel."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpufleet import folder_files
from tests.command import GPUFLEET, PYINFRA, REPOSITORY, run
from tests.installed import lay_out
from tests.operations.rolling import MODEL, rolling
from tests.operations.three import state


@pytest.fixture(params=["checkout", "wheel"])
def product(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment in which the product is imported from the checkout, or from what a wheel installs."""
    place = REPOSITORY if request.param == "checkout" else lay_out(tmp_path / "site-packages")
    env = {"PYTHONPATH": str(place)}
    shown = run(tmp_path, "-c", "import gpufleet; print(gpufleet.__file__)", program=PYINFRA[:1], **env)
    assert shown.stdout.strip() == str(place / "gpufleet" / "__init__.py")
    return env


def made(folder: Path, product: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return run(folder.parent, "init", folder.name, *options, program=GPUFLEET, **product)


def fleet_folder(path: Path, product: dict[str, str]) -> Path:
    folder = path / "fleet"
    done = made(folder, product)
    assert done.returncode == 0, done.stdout
    return folder


def titles(output: str) -> list[str]:
    """The operations of a run, in the order in which they came."""
    return [title.strip() for title in re.findall(r"^--> Starting operation: (.+)$", output, re.MULTILINE)]


@pytest.mark.parametrize("program", ["pyinfra", "gpufleet deploy"])
def test_it_is_deployed_in_waves_as_the_repositorys_page_says(
    tmp_path: Path, product: dict[str, str], program: str
) -> None:
    with rolling(tmp_path / "boxes", 3) as fleet:
        folder = fleet_folder(tmp_path, product)
        page = fleet.folder(tmp_path) / "inventory" / "home.py"  # of boxes that are there
        (folder / "inventory" / "home.py").write_text(page.read_text())

        def deploy(*options: str) -> subprocess.CompletedProcess[str]:
            if program == "pyinfra":
                return run(folder, *options, "inventory/home.py", "deploy.py", **product)
            return run(tmp_path, "deploy", "fleet/inventory/home.py", *options, program=GPUFLEET, **product)

        dry = deploy("--dry")
        assert dry.returncode == 5 and f"to do: activate {MODEL}" in dry.stdout, dry.stdout
        done = deploy("-y")
        assert done.returncode == 0, done.stdout
        waves = ["Wave 1 of 3: box-1 (canary of cpu, vllm-0.27.1-cpu)", "Wave 2 of 3: box-2 (25 %)"]
        waves.append("Wave 3 of 3: box-3 (25 %)")
        assert titles(done.stdout)[-3:] == waves and titles(done.stdout)[0] == "Lock", done.stdout
        before, in_waves = done.stdout.split("Starting operation: Wave 1", 1)
        assert "] No changes" in before and "] No changes" not in in_waves, done.stdout
        assert fleet.switched == ["box-1", "box-2", "box-3"]
        again = deploy("-y")
        assert again.returncode == 0 and state(again.stdout, "box-1") == "serving, nothing to do", again.stdout
        assert len(list((folder / "inventory" / "reports" / "home").glob("*.json"))) == 3  # the dry one has one, too


def test_its_own_page_of_a_model_adds_to_the_products(tmp_path: Path, product: dict[str, str]) -> None:
    folder = fleet_folder(tmp_path, product)
    page = (REPOSITORY / "files" / "models" / "qwen3-0.6b.yaml").read_text()
    (folder / "files" / "models" / "mine.yaml").write_text(page.replace("name: qwen3-0.6b", "name: mine", 1))
    scenario = str(REPOSITORY / "lab" / "topologies" / "cpu-only.json")
    done = run(folder, "plan", "--topology", scenario, "--model", "mine", program=GPUFLEET, **product)
    assert done.returncode == 0 and "mine" in done.stdout, done.stdout
    done = run(folder, "plan", "--topology", scenario, "--model", MODEL, program=GPUFLEET, **product)
    assert done.returncode == 0 and MODEL in done.stdout, done.stdout


def test_operations_of_the_owner_run_after_the_products(tmp_path: Path) -> None:
    product = {"PYTHONPATH": str(REPOSITORY)}
    with rolling(tmp_path / "boxes", 2) as fleet:
        folder = fleet_folder(tmp_path, product)
        page = fleet.folder(tmp_path) / "inventory" / "home.py"
        (folder / "inventory" / "home.py").write_text(page.read_text())
        own = (
            'from pyinfra.operations import python\npython.call(name="Mine", function=lambda: print("mine was here"))\n'
        )
        (folder / "deploy.py").write_text(folder_files.DEPLOY + own)
        done = run(folder, "-y", "inventory/home.py", "deploy.py", **product)
    assert done.returncode == 0 and done.stdout.count("mine was here") == 2, done.stdout
    assert titles(done.stdout)[-2:] == ["Wave 2 of 2: box-2 (25 %)", "Mine"], done.stdout


def test_without_deploy_py_it_is_said_how_a_folder_is_made(tmp_path: Path) -> None:
    folder = fleet_folder(tmp_path, {"PYTHONPATH": str(REPOSITORY)})
    os.unlink(folder / "deploy.py")
    done = run(tmp_path, "deploy", "fleet/inventory/home.py", program=GPUFLEET)
    assert done.returncode == 2 and "has no deploy.py: `gpufleet init DIR` makes" in done.stdout, done.stdout
