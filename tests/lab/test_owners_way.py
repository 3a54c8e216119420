"""An owner's way from `pip install` to the first completion, by the commands of the pages as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet.wheelhouse.store import default_root
from lab import state
from lab.base import SUDO_PASSWORD
from lab.hub import Hub, Repo
from tests.command import REPOSITORY
from tests.documents import Command, commands
from tests.installed import lay_out
from tests.lab.support import SmallLab, small_lab
from tests.lab.typist import Typist
from tests.tiny_qwen3 import SENTENCE, checkpoint

pytestmark = [pytest.mark.lab, pytest.mark.large]  # minutes of the default run, which has to end within forty
ADDRESS = "192.168.1.11"  # of the pages
BOX = "lab-1"
COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"
START = REPOSITORY / "docs" / "start.md"
FOLDER = REPOSITORY / "docs" / "how-to" / "a-folder-of-your-own.md"
ANSWERS = {
    "Trust it from now on? [y/N]": "y",
    "sudo password (for all boxes that ask):": SUDO_PASSWORD,
    "Press enter to execute": "",
    "Remove this from turing-1? [y/N]": "y",
}
PIPS = [Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"]


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("owner", 71, ["cpu-only"]) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def hub(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Has the repository that the pages name, with a small model of its kind."""
    folder = tmp_path_factory.mktemp("hub")
    checkpoint(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with Hub({"Qwen/Qwen3-0.6B": Repo(files, COMMIT)}, bind=state.load(lab.where).address) as there:
        yield there


@pytest.fixture(scope="module")
def home(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The owner's home: an ssh config and a curl that find the pages' address where the lab's box is."""
    home = tmp_path_factory.mktemp("home")
    where, address = state.load(lab.where), state.load(lab.where).box(BOX).address
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh" / "config").write_text(
        f"Host {ADDRESS}\n    HostName {address}\n    User opspw\n    IdentityFile {where.ssh_key}\n"
    )
    (home / ".curlrc").write_text(f'connect-to = "{ADDRESS}:8000:{address}:8000"\nsilent\n')
    (home / ".gitconfig").write_text("[user]\n    name = An Owner\n    email = owner@example.org\n")
    return home


@pytest.fixture(scope="module")
def owner(home: Path, hub: Hub) -> Iterator[Typist]:
    """At a terminal in a checkout, without anything of this test's own Python environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    python = Path(sys.base_prefix) / "bin"
    path = [str(python), *(part for part in os.environ["PATH"].split(":") if ".venv" not in part)]
    env = {**kept, "HOME": str(home), "PATH": ":".join(path), "HF_ENDPOINT": hub.url, "PYINFRA_PROGRESS": "off"}
    env["GPUFLEET_STORE"] = str(default_root())  # what this machine has had from outside is not fetched again
    if told := next((path for path in PIPS if path.is_file()), None):  # where this machine's pip finds packages
        env["PIP_CONFIG_FILE"] = str(told)
    with Typist(REPOSITORY, env) as typist:
        yield typist


def run(owner: Typist, command: Command, code: int = 0) -> str:
    ended, said = owner.command(command.text, ANSWERS)
    assert ended == code, f"{command.text}\n{said}"
    return said


def test_from_pip_install_to_the_first_completion(owner: Typist, lab: SmallLab, home: Path) -> None:
    before, rest = commands(START)[:2], commands(START)[2:6]
    assert [command.program for command in (*before, *rest)] == [
        *("python3", ".", "pip", "gpufleet", "gpufleet", "curl"),
    ]
    for command in before:
        run(owner, command)
    pip, init, deploy, curl = rest
    owner.typed.clear()
    run(owner, pip)
    said = run(owner, init)
    assert "next: gpufleet deploy" in said and str(home / "fleet" / "inventory" / "home.py") in said
    # The lab has no internet: its boxes' packages are on mirrors. A line more than a reader types.
    mirrors = f"echo 'mirrors = {json.dumps(lab.mirrors())}' >> ~/fleet/group_data/all.py"
    run(owner, Command((mirrors,)))
    said = run(owner, deploy)
    assert "qwen3-0.6b" in said and "gated in" in said, said
    answer: dict[str, Any] = json.loads(run(owner, curl).splitlines()[-1])
    assert answer["choices"][0]["message"]["content"].strip() == SENTENCE.replace("|", "")
    asked = [word for word in owner.typed if word in ANSWERS.values()]
    assert len(owner.typed) - len(asked) - 1 == 5, owner.typed  # the last command goes over two lines
    assert len(owner.typed) <= 10, owner.typed


def test_what_ran_is_what_a_wheel_has(owner: Typist, home: Path, tmp_path: Path) -> None:
    """And no checkout; tests/operations/test_owners_folder.py believes that a wheel is so laid out."""
    ended, said = owner.command("cd / && python -c 'import gpufleet; print(gpufleet.__file__)'; cd - >/dev/null")
    (place,) = re.findall(rf"^({re.escape(str(home))}/gpufleet/lib/.+)/gpufleet/__init__\.py$", said, re.MULTILINE)
    assert ended == 0
    packages = ("gpufleet", "hostkit", "operations")
    site = lay_out(tmp_path)
    assert {path for name in packages for path in laid(Path(place) / name)} == {
        path for name in packages for path in laid(site / name)
    }


def laid(package: Path) -> set[str]:
    """A package's files, without byte code."""
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(package.parent)) for path in files}


def test_the_rest_of_the_start(owner: Typist) -> None:
    again, *looks, _ = commands(START)[6:]  # the last one removes: below
    said = run(owner, again)
    assert re.search(r"^turing-1 .* serving, nothing to do$", said, re.MULTILINE) and "] Success" not in said, said
    assert [command.program for command in looks] == ["gpufleet"] * 4
    for command in looks:
        run(owner, command)


def test_a_folder_of_your_own(owner: Typist, home: Path) -> None:
    """By its page, after the start's: the first command would write over what is there, and does not."""
    init, *rest = commands(FOLDER)
    page = (home / "fleet" / "inventory" / "home.py").read_text()
    run(owner, init, code=2)
    assert (home / "fleet" / "inventory" / "home.py").read_text() == page
    for command in rest:
        if command.program == "pip":
            owner.command(f"cd {REPOSITORY}")
        run(owner, command)
    shown, said = owner.command("git -C ~/fleet ls-files")
    assert shown == 0 and "inventory/facts/home/turing-1.json" in said and "inventory/reports" not in said, said
    shutil.rmtree(home / "fleet" / "inventory" / "reports")


def test_how_to_get_it_off_again(owner: Typist, lab: SmallLab, home: Path) -> None:
    """The start's last command, when all others were run: models and packages stay, as the page says."""
    remove = commands(START)[-1]
    assert remove.text.split()[:2] == ["gpufleet", "remove"]
    owner.typed.clear()
    said = run(owner, remove)
    assert re.search(r"^turing-1: removed$", said, re.MULTILINE), said
    assert "the next deploy sets it up anew, unless you take it out" in said, said
    assert owner.typed == [remove.text, SUDO_PASSWORD, "y"]
    left = "ls -A /opt/gpufleet; ls -d /var/lib/gpufleet* /var/cache/gpufleet* 2>/dev/null; id gpufleet 2>/dev/null"
    assert lab.sh(BOX, f"{left}; ls /etc/systemd/system | grep gpufleet || :") == "models"
    assert lab.sh(BOX, "ls /opt/gpufleet/models") == "qwen3-0.6b"
    assert lab.sh(BOX, "dpkg-query -W -f '${db:Status-Abbrev}' python3-venv").strip() == "ii"
    inventory = home / "fleet" / "inventory"
    assert not (inventory / "facts" / "home" / "turing-1.json").exists()
    assert len(list((inventory / "reports" / "home").glob("turing-1-*.journal.jsonl"))) == 1
