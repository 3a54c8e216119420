"""The stack for SM75 on a booted box without any route outside: the genuine wheel patched, torch for CUDA, FlashQLA.

Several GB and many minutes, so behind the marker `large`. The box has no card: everything is done and asked but what
runs on one. It needs FlashQLA's repository, which tests do not fetch from outside: GPUFLEET_GIT names a mirror that has
it (`file:///srv/git/{path}`), and GPUFLEET_STORE a store, where what comes from the package index stays.
"""

from __future__ import annotations

import json
import os
import time
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
from gpufleet.wheelhouse.items import Item, Made
from gpufleet.wheelhouse.store import Store, default_root
from operations.runtime_spec import spec
from tests.golden import test_reference_boxes as golden
from tests.golden.environments import NAMESPACE
from tests.lab.gpu_boxes import Box, Clock
from tests.lab.support import SmallLab, small_lab
from tests.unit.fleets import gpu_facts, plan, product_stacks

pytestmark = [pytest.mark.lab, pytest.mark.large]

BOX, OTHER = "lab-1", "lab-2"
STACK = "vllm-0.27.1-sm75"
GIGABIT, TEN_GIGABIT = 117_500_000, 1_175_000_000  # bytes per second of TCP over Ethernet without jumbo frames
GIT = os.environ.get("GPUFLEET_GIT")


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("gpu", 95, ["cpu-only", "cpu-only"]) as found:
        yield found


def planned() -> BoxPlan:
    """Two 2080 Ti with a bridge, on a system like the box's."""
    models = catalogue.load(Model, "model", paths.model_folders())
    data = {"serve": ["qwen3.8-27b-awq"], "stack": STACK}
    return plan(gpu_facts(), data, stacks=product_stacks().values(), models=models.values())


class First:
    """The runtime on the first box, and what it took."""

    def __init__(self, lab: SmallLab) -> None:
        self.lab, self.clock = lab, Clock()
        assert GIT, "GPUFLEET_GIT names no mirror with FlashQLA's repository"
        began = time.monotonic()
        self.plan = planned()
        (instance,) = self.plan.instances
        self.runtime = instance.runtime
        assert (self.runtime.python, self.runtime.toolkit, self.runtime.archs) == ("3.11", "13-0", ("sm75",))
        self.store = Store(default_root())
        self.items = prepare.ready(self.runtime, self.store, Mirrors(git=GIT), Fetch(), print, Tally())
        self.clock.note("got and made on the controller", began)
        self.box = Box(lab, BOX)
        self.box.prepare(self.store, self.items)
        began = time.monotonic()
        self.sent = self.box.bring(self.files())
        self.clock.note("brought to the box", began)
        began = time.monotonic()
        self.last, self.told = self.box.install(self.spec())
        self.clock.note("installed, compiled, verified on the box", began)
        self.python = f"{self.runtime.path}/bin/python"

    def files(self) -> list[tuple[Item, Path]]:
        return [(item, self.store.path(item)) for item in self.items]

    def spec(self, compiled: dict[str, Any] | None = None) -> dict[str, Any]:
        """No card is in the box: it is compiled for 7.5 all the same, and nothing is run on one."""
        asked = spec(self.plan, self.runtime, self.items, compiled) | {"gpus": 0, "instances": []}
        del asked["env"]["CUDA_VISIBLE_DEVICES"]
        return asked


@pytest.fixture(scope="module")
def made(lab: SmallLab) -> First:
    return First(lab)


def sized(items: list[Item]) -> int:
    return sum(item.size or 0 for item in items)


def test_the_box_has_no_route_outside(made: First) -> None:
    assert "default" not in made.lab.sh(BOX, "cat /proc/net/route; ip route 2>/dev/null || true")
    # all but what the workshop has put there: uv, and numpy among others
    assert 0.95 < made.sent / sized(made.items) <= 1


def test_every_package_is_what_is_locked_and_torch_is_for_cuda_13(made: First) -> None:
    verified = made.last["verified"]
    assert verified["torch"]["cuda"].startswith("13") and "sm_75" in verified["torch"]["arch_list"]
    assert verified["nvcc"] == "13.0"
    expected = {"torch": "2.13.0", "transformers": "5.15.1", "triton": "3.7.1", "flashinfer-python": "0.6.16.post3"}
    assert {name: verified["versions"][name].split("+")[0] for name in expected} == expected
    assert ".gpufleet." in verified["versions"]["vllm"].replace("+", ".")


def test_flashqla_was_compiled_for_75(made: First) -> None:
    place = f"{made.runtime.path}/lib/python3.11/site-packages/flash_qla/ops/gated_delta_rule/legacy/prebuilt/sm75"
    assert int(made.lab.sh(BOX, f"stat -c %s {place}/flash_qla_legacy_gdn.so")) > 100_000
    assert made.last["compiled"]["filename"].endswith("-compiled.tar")


def test_flashinfers_attention_was_compiled_for_75(made: First) -> None:
    place = f"{made.runtime.path}/lib/python3.11/site-packages/flashinfer/data/aot"
    kernels = made.lab.sh(BOX, f"ls {place}").split()
    assert len(kernels) == 2 and all("head_dim_qk_256" in kernel for kernel in kernels)
    for kernel in kernels:
        assert int(made.lab.sh(BOX, f"stat -c %s {place}/{kernel}/{kernel}.so")) > 100_000


def test_vllm_is_imported_by_the_services_user(made: First) -> None:
    modules = "vllm, vllm._custom_ops, vllm.model_executor.models.qwen3_5_mtp as m"
    user = "setpriv --reuid=gpufleet --regid=gpufleet --clear-groups"
    said = made.lab.sh(BOX, f"cd / && {user} {made.python} -c 'import {modules}; print(m.__file__)'")
    assert made.runtime.path in said.splitlines()[-1]


def test_its_parser_takes_every_reference_box_and_no_unknown_flag(made: First) -> None:
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


def test_a_second_box_gets_the_same_bytes_and_compiles_nothing(made: First) -> None:
    known = made.last["compiled"]
    archive = made.box.root / f"opt/gpufleet/store/{known['sha256']}/{known['filename']}"
    files = [*made.files(), (Item(known["filename"], known["sha256"], known["size"], Made()), archive)]
    box = Box(made.lab, OTHER)
    box.prepare(made.store, made.items)
    tree = made.box.root / made.runtime.path.lstrip("/")
    for pace in (TEN_GIGABIT, GIGABIT):
        began = time.monotonic()
        box.copied(tree, pace)
        made.clock.note(f"a plain copy of the ready runtime at {pace / 1e6:.0f} MB/s at most", began)
        box.lab.sh(OTHER, "rm -rf /opt/gpufleet/store")
        began = time.monotonic()
        box.bring(files, pace)
        made.clock.note(f"the files of it brought by us at {pace / 1e6:.0f} MB/s at most", began)
    began = time.monotonic()
    last, told = box.install(made.spec({key: known[key] for key in known if key != "size"}))
    made.clock.note("installed and verified on the second box", began)
    assert not [line for line in told if line.startswith("compiling ")]
    assert last["compiled"] == known and last["verified"]["versions"] == made.last["verified"]["versions"]
    packages = f"{made.runtime.path.lstrip('/')}/lib/python3.11/site-packages"
    for kernel in (made.box.root / packages).glob("flash*/**/*.so"):
        inside = kernel.relative_to(made.box.root)
        assert (box.root / inside).read_bytes() == kernel.read_bytes(), inside
