"""The plan: where each value comes from, ports, GPUs, toolkits."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.errors import ConfigError
from gpufleet.layers import Layer
from gpufleet.runtime import Runtime
from gpufleet.toolkit import distro
from gpufleet.traits import traits_of
from tests.unit.fleets import cpu_facts, gpu_facts, model, plan, stack


def test_traits() -> None:
    assert traits_of(cpu_facts()) == ["cpu"]
    assert traits_of(gpu_facts()) == ["sm75", "nvlink", "sm75_nvlink", "nv2", "gpus2"]
    assert traits_of(gpu_facts((8, 6), 2, "PHB")) == ["sm86", "pcie", "sm86_pcie", "gpus2"]
    assert traits_of(gpu_facts((7, 0), 1)) == ["sm70", "gpus1"]


def test_stack_model_layers_entry_and_command_line_in_that_order() -> None:
    layers = {
        "all": [Layer("group_data/all.py", {"serve_args": {"max-num-seqs": 1, "dtype": "float32"}})],
        "cpu": [Layer("group_data/cpu.py", {"serve_args": {"max-num-seqs": 2}})],
        "kitchen": [Layer("group_data/kitchen.py", {"serve_args": {"max-num-seqs": 3}})],
    }
    data = {"serve": [{"model": "tiny", "args": {"seed": 7}}]}
    found = plan(cpu_facts(), data, layers=layers, groups=("kitchen",), overrides={"serve_env": {"A": "b"}})
    (instance,) = found.instances
    assert instance.args["max-num-seqs"] == 3
    assert instance.because["max-num-seqs"] == "group_data/kitchen.py"
    assert (instance.args["dtype"], instance.because["dtype"]) == ("float32", "group_data/all.py")
    assert (instance.args["enforce-eager"], instance.because["enforce-eager"]) == (True, "stack engine-cpu")
    assert (instance.args["max-model-len"], instance.because["max-model-len"]) == (512, "model tiny")
    assert (instance.args["seed"], instance.because["seed"]) == (7, "inventory/x.py, serve entry")
    assert (instance.env["A"], instance.because["env.A"]) == ("b", "--data")


def test_the_command_line_wins_over_the_serve_entry() -> None:
    data = {"serve": [{"model": "tiny", "args": {"seed": 7}}]}
    (instance,) = plan(cpu_facts(), data, overrides={"serve_args": {"seed": 8}}).instances
    assert (instance.args["seed"], instance.because["seed"]) == (8, "--data")


def test_the_names_of_a_page_are_all_served_the_first_of_them_first() -> None:
    many = model(aliases=["gpt-4", "qwen"])
    (instance,) = plan(cpu_facts(), models=[many]).instances
    assert instance.args["served-model-name"] == ["tiny", "gpt-4", "qwen"]
    (instance,) = plan(cpu_facts(), {"serve_args": {"served-model-name": "mine"}}, models=[many]).instances
    assert instance.args["served-model-name"] == "mine"
    (instance,) = plan(cpu_facts()).instances
    assert instance.args["served-model-name"] == "tiny"


def test_a_stack_that_is_taken_away_leaves_it_to_the_cards() -> None:
    by_default = stack("engine-sm75", arch=["sm75"], default_for=["sm75"])
    (instance,) = plan(gpu_facts(), {"instances": 1}, stacks=[stack(), by_default], overrides={"stack": None}).instances
    assert (instance.stack.name, instance.because["stack"]) == ("engine-sm75", "computed: the default for sm75")


def test_a_size_that_is_taken_away_is_computed_again() -> None:
    found = plan(gpu_facts(), {"tensor_parallel_size": 1}, stacks=[stack(arch=["sm75"])])
    assert [item.gpus for item in found.instances] == [(0,), (1,)]
    again = {"tensor_parallel_size": None}
    found = plan(gpu_facts(), {"tensor_parallel_size": 1}, stacks=[stack(arch=["sm75"])], overrides=again)
    assert [item.gpus for item in found.instances] == [(0, 1)]


def test_every_value_has_a_reason() -> None:
    (instance,) = plan(gpu_facts(), stacks=[stack(arch=["sm75"])]).instances
    assert set(instance.args) <= set(instance.because)


def test_ports_follow_each_other_and_a_given_one_is_kept() -> None:
    data = {"serve": ["tiny", {"model": "tiny", "name": "second", "port": 9000}, {"model": "tiny", "name": "third"}]}
    assert [item.port for item in plan(cpu_facts(), data).instances] == [8000, 9000, 8001]


def test_two_instances_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two instances are called 'tiny'"):
        plan(cpu_facts(), {"serve": ["tiny", "tiny"]})


def test_a_model_without_stack_is_refused_with_those_there_are() -> None:
    found = plan(cpu_facts(), {"stack": None})
    assert not found.instances
    assert [item.reason for item in found.unplaced] == ["no stack is known for cpu"]


def test_gpus_are_named_by_uuid_in_pci_order() -> None:
    data = {"tensor_parallel_size": 2, "serve": ["tiny", {"model": "tiny", "name": "second"}]}
    first, second = plan(gpu_facts(count=4), data, stacks=[stack(arch=["sm75"])]).instances
    assert (first.gpus, second.gpus) == ((0, 1), (2, 3))
    assert first.env["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert first.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (first.args["tensor-parallel-size"], first.link) == (2, "NV2")


@pytest.mark.parametrize(
    ("facts", "data", "toolkit"),
    [
        (cpu_facts(), {}, None),
        (gpu_facts((7, 5)), {}, "13-0"),
        (gpu_facts((8, 6)), {}, "13-0"),
        (gpu_facts((7, 0)), {}, "12-9"),
        (gpu_facts((7, 5)), {"host": {"toolkit": "12-8"}}, "12-8"),
        (gpu_facts((7, 5)), {"host": {"toolkit": "none"}}, None),
    ],
)
def test_the_toolkit_is_the_newest_the_gpus_allow(facts: dict, data: dict, toolkit: str | None) -> None:
    found = plan(facts, data)
    assert found.toolkit == toolkit
    assert (f"cuda-toolkit-{toolkit}" in found.packages) == bool(toolkit)


def test_the_stacks_toolkit_wins_over_the_newest() -> None:
    assert plan(gpu_facts(), stacks=[stack(cuda_toolkit="12-9")]).toolkit == "12-9"


def test_nvidias_names_of_distributions() -> None:
    assert distro({"id": "debian", "version_id": "12"}) == "debian12"
    assert distro({"id": "ubuntu", "version_id": "24.04"}) == "ubuntu2404"


def test_the_runtime_is_named_by_what_goes_into_it() -> None:
    def name(python: str = "3.11", toolkit: str | None = None, archs: tuple[str, ...] = (), **page: Any) -> str:
        return Runtime(stack(**page), python, toolkit, archs).name

    def planned(python: str) -> str:
        return Runtime(stack(lock=None, uv=None), python).name

    assert name() == name()
    assert name() != name(uv={"version": "0.9.1", "sha256": "0" * 64})
    assert name() != name(verify=["import torch"])
    assert name() == name(title="another title")
    assert planned("3.11") != planned("3.12")
    assert len({name(), name(toolkit="13-0"), name(toolkit="13-0", archs=("sm75",))}) == 3


def test_a_model_is_fetched_once_for_two_instances() -> None:
    data = {"serve": ["tiny", {"model": "tiny", "name": "second"}]}
    assert [item.name for item in plan(cpu_facts(), data, models=[model()]).models] == ["tiny"]
