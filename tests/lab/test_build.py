"""Built from source on a box without a route outside: killed in the middle, finished by the next run."""

from __future__ import annotations

import ctypes
import io
import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpufleet import kit, sdist
from gpufleet.building import Building
from gpufleet.runtime import Runtime
from gpufleet.wheelhouse import built
from gpufleet.wheelhouse.items import Item, Made, uv_item
from gpufleet.wheelhouse.store import Store
from lab import pip, rootfs, state
from lab.paths import REPOSITORY
from tests.lab import kernels
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.large]  # minutes of the default run, which has to end within forty

BOX, OTHER = "lab-1", "lab-2"
KIT = "/opt/gpufleet/kit/test.pyz"
BUILDS = "/opt/gpufleet/builds"


@dataclass(frozen=True)
class Question:
    """A build, the spec the operation sends of it, and a controller's store with all that it needs."""

    building: Building
    spec: dict[str, Any]
    store: Store

    @property
    def attempt(self) -> str:
        return f"{BUILDS}/.{self.building.name}.building"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("build", 93, ["cpu-only", "cpu-only"]) as found:
        place(found, KIT, kit.build().data)
        mirrors = found.mirrors()
        repository = {
            "name": "gpufleet-cuda",
            "url": mirrors["cuda"].replace("{distro}", "debian12"),
            "key_url": mirrors["cuda_key"].replace("{distro}", "debian12"),
            "fingerprint": mirrors["cuda_key_fingerprint"],
        }
        packages = ["cuda-toolkit-13-0", "g++", "python3-dev"]
        ask(found, "apt", {"packages": packages, "repository": repository})
        yield found


@pytest.fixture(scope="module")
def question(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Question:
    """The build of a package of vLLM's shape; all that it needs lies in the box's store."""
    folder = tmp_path_factory.mktemp("source")
    sha256 = kernels.archive(folder / kernels.ARCHIVE)
    stack = kernels.page(folder / "files", sha256)
    runtime = Runtime(stack, "3.11", "13-0", ("sm75",))
    building = runtime.building
    assert building is not None and stack.uv is not None
    packed = sdist.patched(folder / kernels.ARCHIVE, sha256, building.series)
    source = Item(packed.filename, packed.sha256, len(packed.data), Made())
    pins = kernels.tools()
    cache = lab.where.cache / "wheels"
    uv = uv_item(stack.uv)
    wanted = [f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}" for pin in pins]
    pip.download([*wanted, f"uv=={stack.uv.version} --hash=sha256:{stack.uv.sha256}"], cache)
    wheels = [uv, *(Item(pin.filename, pin.sha256, pin.size, Made()) for pin in pins)]
    store = Store(folder / "store")
    store.put(Item(kernels.ARCHIVE, sha256, None, Made()), folder / kernels.ARCHIVE)
    for item in wheels:
        store.put(item, cache / item.filename)
        stock(lab, item, (cache / item.filename).read_bytes())
    stock(lab, source, packed.data)
    return Question(building, built.spec(runtime, building, source, wheels, None), store)


def place(lab: SmallLab, path: str, data: bytes) -> None:
    target = rootfs.root(lab.where, BOX) / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def stock(lab: SmallLab, item: Item, data: bytes) -> None:
    place(lab, f"{built.STORE}/{item.sha256}/{item.filename}", data)


def command(verb: str, spec: dict[str, Any]) -> str:
    return f"printf %s {shlex.quote(json.dumps(spec))} | python3 {KIT} {verb}"


def ask(lab: SmallLab, verb: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What a verb of the kit says on the box, its answer last."""
    events = [json.loads(line) for line in lab.sh(BOX, command(verb, spec)).splitlines()]
    assert events[-1]["event"] == "result", events
    return events


def follower(lab: SmallLab, question: Question) -> subprocess.Popen[bytes]:
    """A connection that follows the build as a job."""
    init = str(state.load(lab.where).box(BOX).pid)
    script = command("job", {"verb": "build", "spec": question.spec})
    words = ["nsenter", "-t", init, "-m", "-u", "-i", "-n", "-p", "-C", "sh", "-c", script]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def test_killed_in_the_middle_nothing_has_its_name(lab: SmallLab, question: Question) -> None:
    log = rootfs.root(lab.where, BOX) / f"{question.attempt}/log".lstrip("/")
    lab.sh(BOX, f"touch {kernels.HOLD}")
    following = follower(lab, question)
    last = f"[{kernels.KERNELS}/{kernels.KERNELS + 1}]".encode()
    assert following.stdout is not None
    try:
        wait_for(lambda: log.exists() and last in log.read_bytes(), 300)
    finally:
        following.stdout.close()  # the connection breaks
        following.kill()
        following.wait()
    assert lab.sh(BOX, "systemctl is-active 'gpufleet-job-*'") == "active"  # the build goes on
    lab("kill", BOX)
    lab("start", BOX)  # without the file that held the build, which was in memory
    assert lab.sh(BOX, f"ls -A {BUILDS}") == f".{question.building.name}.building"
    assert lab.sh(BOX, f"find {question.attempt} -name CMakeCache.txt") != ""
    assert lab.sh(BOX, f"find {built.STORE} -name '{kernels.NAME}*.whl'") == ""


def test_the_next_run_clears_that_away_and_builds(lab: SmallLab, question: Question, tmp_path: Path) -> None:
    events = ask(lab, "job", {"verb": "build", "spec": question.spec})
    said = [event.get("message") for event in events]
    assert f"an earlier build of {question.building.name} did not end: it is begun anew" in said
    wheel = events[-1]["wheel"]
    assert wheel["filename"] == f"{kernels.NAME}-{question.building.version}-cp311-cp311-linux_x86_64.whl"
    path = f"{built.STORE}/{wheel['sha256']}/{wheel['filename']}"
    assert lab.sh(BOX, f"sha256sum {path}").split()[0] == wheel["sha256"]
    assert lab.sh(BOX, f"ls -A {BUILDS}") == f"{question.building.name}.json"
    content = (rootfs.root(lab.where, BOX) / path.lstrip("/")).read_bytes()
    assert len(content) == wheel["size"]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert f"{kernels.NAME}/patched.py" in archive.namelist()
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        library = Path(archive.extract(name, tmp_path))
    assert kernels.architectures(library.read_bytes()) == {75}
    loaded = ctypes.CDLL(str(shutil.copy(library, tmp_path / "kernels.so")))
    assert [loaded.many_3(), loaded.many_4()] == [33, 4]  # the one is patched


def test_then_there_is_nothing_to_build(lab: SmallLab, question: Question) -> None:
    events = ask(lab, "job", {"verb": "build", "spec": question.spec})
    assert events[-1]["seconds"] == 0 and len(events) == 1


def test_the_other_box_gets_the_wheel(lab: SmallLab, question: Question, tmp_path: Path) -> None:
    """By the operation itself, over SSH: the wheel comes into the controller's store, and to the other box."""
    found = state.load(lab.where)
    login = {"ssh_user": "root", "ssh_key": found.ssh_key, "ssh_known_hosts_file": found.known_hosts}
    boxes = {name: {"ssh_hostname": found.box(name).address, **login} for name in (BOX, OTHER)}
    given = json.dumps({"boxes": boxes, "folder": str(tmp_path), "store": str(question.store.root)})
    program = [sys.executable, "-m", "tests.lab.building"]
    done = subprocess.run(
        program, cwd=REPOSITORY, input=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *said, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["failed"] == {} and last["wheels"][BOX] == last["wheels"][OTHER], done.stdout
    wheel = last["wheels"][OTHER]
    kept = question.store.path(Item(wheel["filename"], wheel["sha256"], wheel["size"], Made()))
    assert kept.stat().st_size == wheel["size"]
    assert lab.sh(OTHER, f"sha256sum {built.STORE}/{wheel['sha256']}/*.whl").split()[0] == wheel["sha256"]
    # One of them was asked to build, and had the wheel of the tests before; the other never was.
    assert [line["box"] for line in said if "from source on this box" in line["says"]] == [BOX]
    assert lab.sh(OTHER, f"ls {BUILDS} 2>/dev/null || echo none") == "none"
