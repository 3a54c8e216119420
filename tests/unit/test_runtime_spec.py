"""What the kit is told of a runtime: made of the plan, its cards, and the files it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gpufleet.plan import BoxPlan
from gpufleet.stacks import Stack
from operations import runtime_spec
from tests.unit.fleets import SHA, cpu_facts, gpu_facts, plan, stack


@dataclass(frozen=True)
class File:
    filename: str
    sha256: str
    size: int | None


UV = File("uv-0.9.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", SHA, 9)
ITEMS = [
    UV,
    File("torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl", "1" * 64, 100),
    File("vllm-0.27.1+gpufleet.0123456789ab-cp38-abi3-manylinux_2_28_x86_64.whl", "2" * 64, 200),
    File("typing_extensions-4.16.0-py3-none-any.whl", "3" * 64, None),
]


def on_cards(tmp_path: Path) -> Stack:
    """A stack for 7.5 with an extension, in an owner's folder."""
    (tmp_path / "compile").mkdir()
    (tmp_path / "compile/kernels.py").write_text("print('compiling')\n")
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/engine-py311.txt").write_text("torch==2.13.0+cu130\n")
    made = stack(
        "engine-sm75",
        arch=["sm75"],
        default_for=["sm75"],
        cuda_toolkit="13-0",
        lock="engine",
        compile=[{"name": "kernels", "script": "kernels.py", "into": "engine/prebuilt"}],
        verify=["import engine"],
        env={"ENGINE_MODE": "safe"},
    )
    return made.model_copy(update={"path": tmp_path / "stacks/engine-sm75.yaml"})


def planned(tmp_path: Path, **facts: object) -> BoxPlan:
    data = {"stack": None, "instances": 1, "serve_env": {"TOKEN": "s3cret", "ENGINE_MODE": "fast"}}
    return plan(gpu_facts(**facts), data, stacks=[on_cards(tmp_path)])  # type: ignore[arg-type]


def test_a_runtime_for_cards(tmp_path: Path) -> None:
    found = planned(tmp_path)
    (runtime,) = found.runtimes
    spec = runtime_spec.spec(found, runtime, ITEMS)
    assert spec["name"] == runtime.name and spec["python"] == "3.11"
    assert spec["uv"] == {"filename": UV.filename, "sha256": UV.sha256}
    assert [item["size"] for item in spec["files"]] == [9, 100, 200, None]
    assert spec["versions"] == {
        "torch": "2.13.0+cu130",
        "vllm": "0.27.1+gpufleet.0123456789ab",
        "typing-extensions": "4.16.0",
    }
    assert (spec["toolkit"], spec["archs"], spec["gpus"]) == ("13-0", ["sm75"], 2)
    assert spec["compile"] == [{"name": "kernels", "script": "print('compiling')\n", "into": "engine/prebuilt"}]
    assert (spec["compiled"], spec["verify"], spec["instances"]) == (None, ["import engine"], ["tiny"])
    assert spec["lock"] == "torch==2.13.0+cu130\n"


def test_it_is_verified_in_the_services_environment_without_what_is_the_owners(tmp_path: Path) -> None:
    found = planned(tmp_path)
    (runtime,) = found.runtimes
    env = runtime_spec.spec(found, runtime, ITEMS)["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1" and env["CUDA_HOME"] == "/usr/local/cuda-13.0"
    assert env["PATH"].startswith(f"{runtime.path}/bin:/usr/local/cuda-13.0/bin:")
    assert "s3cret" not in str(env) and "gpufleet-tiny" not in str(env)
    assert env["TRITON_CACHE_DIR"] == "/var/cache/gpufleet/verify/triton"


def test_only_cards_that_the_stack_is_for_are_asked(tmp_path: Path) -> None:
    facts = gpu_facts(count=3)
    facts["gpus"][2]["compute_capability"] = [7, 0]
    found = plan(facts, {"stack": None, "instances": 1}, stacks=[on_cards(tmp_path)])
    spec = runtime_spec.spec(found, found.runtimes[0], ITEMS)
    assert (spec["archs"], spec["gpus"]) == (["sm75"], 2)
    assert spec["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


def test_a_runtime_for_the_cpu_is_asked_for_no_card() -> None:
    found = plan(cpu_facts())
    spec = runtime_spec.spec(found, found.runtimes[0], ITEMS, {"filename": "x.tar", "sha256": SHA, "glibc": "2.36"})
    assert (spec["toolkit"], spec["archs"], spec["gpus"], spec["compile"]) == (None, [], 0, [])
    assert "CUDA_VISIBLE_DEVICES" not in spec["env"]
    assert spec["compiled"] == {"filename": "x.tar", "sha256": SHA, "glibc": "2.36"}


def test_without_its_uv_there_is_no_spec() -> None:
    found = plan(cpu_facts())
    with pytest.raises(ValueError, match="not enough values"):
        runtime_spec.spec(found, found.runtimes[0], ITEMS[1:])


@pytest.mark.parametrize(
    ("torch", "cuda"),
    [("2.13.0+cu130", "13.0"), ("2.10.0+cu128", "12.8"), ("2.13.0+cpu", ""), ("2.13.0", None), ("2.13.0+odd", None)],
)
def test_the_cuda_that_the_pages_torch_is_for(torch: str, cuda: str | None) -> None:
    assert runtime_spec.torch_cuda(stack(versions={"torch": torch})) == cuda


def test_a_page_that_names_no_torch_asks_for_no_cuda(tmp_path: Path) -> None:
    found = planned(tmp_path)
    assert runtime_spec.spec(found, found.runtimes[0], ITEMS)["torch_cuda"] is None
