"""The stack for SM75 on a booted box without any route outside: the genuine wheel patched, torch for CUDA, FlashQLA.

Several GB and many minutes, so behind the marker `large`. The box has no card: everything is done and asked but what
runs on one. It needs FlashQLA's repository, which tests do not fetch from outside: GPUFLEET_GIT names a mirror that has
it (`file:///srv/git/{path}`), and GPUFLEET_STORE a store, where what comes from the package index stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths
from gpufleet.models import Model
from gpufleet.plan import BoxPlan
from gpufleet.settings import Fetch, Mirrors
from gpufleet.wheelhouse import prepare
from gpufleet.wheelhouse.download import Tally
from gpufleet.wheelhouse.items import Item
from gpufleet.wheelhouse.store import Store, default_root
from lab import state
from operations.runtime_spec import spec
from tests.command import REPOSITORY
from tests.golden import test_reference_boxes as golden
from tests.golden.environments import NAMESPACE
from tests.lab.support import SmallLab, small_lab
from tests.lab.test_runtimes import Workshop, ended
from tests.unit.fleets import gpu_facts, plan, product_stacks

pytestmark = [pytest.mark.lab, pytest.mark.large]

BOX = "lab-1"
STACK = "vllm-0.27.1-sm75"
GIT = os.environ.get("GPUFLEET_GIT")
# NVIDIA's toolkit has the headers of its libraries, which FlashQLA's includes reach; the lab's has the compiler's only.
HEADERS = ("nvidia_cublas-", "nvidia_cusparse-", "nvidia_cusolver-")


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("gpu", 95, ["cpu-only"]) as found:
        yield found


def planned() -> BoxPlan:
    """Two 2080 Ti with a bridge, on a system like the box's."""
    models = catalogue.load(Model, "model", paths.model_folders())
    data = {"serve": ["qwen3.8-27b-awq"], "stack": STACK}
    return plan(gpu_facts(), data, stacks=product_stacks().values(), models=models.values())


class Made:
    """The runtime on the box, and what it took."""

    def __init__(self, lab: SmallLab) -> None:
        self.lab, self.figures = lab, {}
        assert GIT, "GPUFLEET_GIT names no mirror with FlashQLA's repository"
        began = time.monotonic()
        box_plan = planned()
        (instance,) = box_plan.instances
        self.runtime = instance.runtime
        assert (self.runtime.python, self.runtime.toolkit, self.runtime.archs) == ("3.11", "13-0", ("sm75",))
        store, tally = Store(default_root()), Tally()
        mirrors = Mirrors(git=GIT)
        self.items = prepare.ready(self.runtime, store, mirrors, Fetch(), print, tally)
        self.note("got and made on the controller", began)
        self.box = Workshop(lab)
        self.prepare_box(store)
        self.bring(store)
        began = time.monotonic()
        asked = spec(box_plan, self.runtime, self.items)
        # No card is in the box: it is compiled for 7.5 all the same, and nothing is run on one.
        asked |= {"gpus": 0, "instances": []}
        del asked["env"]["CUDA_VISIBLE_DEVICES"]
        self.last, self.told = ended(self.box.start("job", {"verb": "runtime", "spec": asked}))
        assert self.last["event"] == "result", (self.last, self.told)
        self.note("installed, compiled, verified on the box", began)
        self.python = f"{self.runtime.path}/bin/python"

    def note(self, what: str, began: float) -> None:
        self.figures[what] = round(time.monotonic() - began)
        print(f"{what}: {self.figures[what]} s")

    def prepare_box(self, store: Store) -> None:
        (deb,) = self.lab.where.cache.glob("cuda-*/debian12/x86_64/*.deb")
        self.box.put(f"/root/{deb.name}", deb.read_bytes())
        packages = "g++ python3-dev ninja-build libnuma1"
        self.lab.sh(BOX, f"apt-get -qq update && apt-get -qq install -y {packages} && dpkg -i /root/{deb.name}")
        stubs = "/usr/local/cuda-13.0/lib64/stubs"  # what NVIDIA's has to link the driver's library with
        self.lab.sh(BOX, f"mkdir -p {stubs} && gcc -shared -x c /dev/null -o {stubs}/libcuda.so")
        for item in self.items:
            if item.filename.startswith(HEADERS):
                with zipfile.ZipFile(store.path(item)) as wheel:
                    for entry in wheel.namelist():
                        if entry.startswith("nvidia/cu13/include/") and entry.endswith((".h", ".hpp")):
                            name = entry.removeprefix("nvidia/cu13/include/")
                            if not (self.box.root / "usr/local/cuda-13.0/include" / name).exists():
                                self.box.put(f"/usr/local/cuda-13.0/include/{name}", wheel.read(entry))

    def bring(self, store: Store) -> None:
        """Over SSH, as an operation does it."""
        found = state.load(self.lab.where)
        folder = self.lab.where.home / "by-hash"
        for item in self.items:
            link = folder / item.sha256 / item.filename
            link.parent.mkdir(parents=True)
            link.symlink_to(store.path(item))
        data = {
            "ssh_hostname": found.box(BOX).address,
            "ssh_user": "root",
            "ssh_key": found.ssh_key,
            "ssh_known_hosts_file": found.known_hosts,
        }
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tests.lab.bringing"],
            input=json.dumps(
                {
                    "boxes": {BOX: data},
                    "items": [
                        {"filename": item.filename, "sha256": item.sha256, "size": item.size} for item in self.items
                    ],
                    "store": str(folder),
                }
            ),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert answer["failed"] == {}
        self.figures["MiB over SSH"] = answer["sent"] >> 20
        self.note("brought to the box", began)


@pytest.fixture(scope="module")
def made(lab: SmallLab) -> Made:
    return Made(lab)


def sized(items: list[Item]) -> int:
    return sum(item.size or 0 for item in items)


def test_the_box_has_no_route_outside(made: Made) -> None:
    assert "default" not in made.lab.sh(BOX, "cat /proc/net/route; ip route 2>/dev/null || true")
    # all but what the workshop has put there: uv, and numpy among others
    assert 0.95 < made.figures["MiB over SSH"] / (sized(made.items) >> 20) <= 1


def test_every_package_is_what_is_locked_and_torch_is_for_cuda_13(made: Made) -> None:
    verified = made.last["verified"]
    assert verified["torch"]["cuda"].startswith("13") and "sm_75" in verified["torch"]["arch_list"]
    assert verified["nvcc"] == "13.0"
    expected = {"torch": "2.13.0", "transformers": "5.15.1", "triton": "3.7.1", "flashinfer-python": "0.6.16.post3"}
    assert {name: verified["versions"][name].split("+")[0] for name in expected} == expected
    assert ".gpufleet." in verified["versions"]["vllm"].replace("+", ".")


def test_flashqla_was_compiled_for_75(made: Made) -> None:
    place = f"{made.runtime.path}/lib/python3.11/site-packages/flash_qla/ops/gated_delta_rule/legacy/prebuilt/sm75"
    assert int(made.lab.sh(BOX, f"stat -c %s {place}/flash_qla_legacy_gdn.so")) > 100_000
    assert made.last["compiled"]["filename"].endswith("-compiled.tar")


def test_flashinfers_attention_was_compiled_for_75(made: Made) -> None:
    place = f"{made.runtime.path}/lib/python3.11/site-packages/flashinfer/data/aot"
    kernels = made.lab.sh(BOX, f"ls {place}").split()
    assert len(kernels) == 2 and all("head_dim_qk_256" in kernel for kernel in kernels)
    for kernel in kernels:
        assert int(made.lab.sh(BOX, f"stat -c %s {place}/{kernel}/{kernel}.so")) > 100_000


def test_vllm_is_imported_by_the_services_user(made: Made) -> None:
    modules = "vllm, vllm._custom_ops, vllm.model_executor.models.qwen3_5_mtp as m"
    user = "setpriv --reuid=gpufleet --regid=gpufleet --clear-groups"
    said = made.lab.sh(BOX, f"cd / && {user} {made.python} -c 'import {modules}; print(m.__file__)'")
    assert made.runtime.path in said.splitlines()[-1]


def test_its_parser_takes_every_reference_box_and_no_unknown_flag(made: Made) -> None:
    root: Path = made.box.root / "root"
    (root / "namespace.py").write_text(NAMESPACE.read_text())
    names = golden.of_engine("vllm-0.27.1")
    for number, name in enumerate(names):
        (root / f"golden-{number}.yaml").write_text(golden.rendered(name))
    pages = " ".join(f"golden-{number}.yaml" for number in range(len(names)))
    parse = f"cd /root && VLLM_LOGGING_LEVEL=ERROR {made.python} namespace.py"
    lines = made.lab.sh(BOX, f"{parse} --changed {pages} 2>/dev/null").splitlines()[-len(names) :]
    for name, line in zip(names, lines, strict=True):
        assert json.loads(line) == json.loads(golden.golden(name).read_text(encoding="utf-8")), name
    (root / "unknown.yaml").write_text("no-such-flag: 1\n")
    made.lab.sh(BOX, f"{parse} unknown.yaml", code=2)
