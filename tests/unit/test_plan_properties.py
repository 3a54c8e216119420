"""What holds of every plan, whatever the box and the settings."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet import catalogue, paths
from gpufleet.document import document
from gpufleet.fleet import Fleet
from gpufleet.layers import Layer
from gpufleet.memory import estimate
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.planning import checked_plan, of_fleet
from gpufleet.scenario import Scenario, facts_of
from gpufleet.traits import arch
from tests.unit.fleets import product_stacks

STACKS = product_stacks()
MODELS = catalogue.load(Model, "model", paths.model_folders())
LINKS = ["NV1", "NV2", "NV3", "NV4", "NV6", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"]
CARDS = [(6, 1, 11264), (7, 0, 16384), (7, 0, 32768), (7, 5, 11264), (7, 5, 22528), (8, 6, 24576), (9, 0, 81920)]
CARDS += [(8, 9, 24564), (12, 0, 32607)]


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, Any]:
    """Facts of any box of up to six cards, alike or not, joined anyhow."""
    kinds = draw(st.lists(st.sampled_from(CARDS), min_size=1, max_size=2))
    cards = draw(st.lists(st.sampled_from(kinds), max_size=6))
    gpus = [
        {"index": i, "name": f"card {mib}", "compute_capability": [major, minor], "memory_mib": mib, "bus_id": f"{i}"}
        for i, (major, minor, mib) in enumerate(cards)
    ]
    links = {f"{a}-{b}": draw(st.sampled_from(LINKS)) for a, b in combinations(range(len(cards)), 2)}
    return facts_of(Scenario.model_validate({"name": "box", "driver": "580.1", "gpus": gpus, "links": links}))


counts = st.one_of(st.none(), st.integers(1, 4))
entries = st.builds(
    lambda model, tp, instances, name: {
        "model": model,
        **({"tensor_parallel_size": tp} if tp else {}),
        **({"instances": instances} if instances else {}),
        "name": name,
    },
    st.sampled_from(sorted(MODELS)),
    counts,
    counts,
    st.sampled_from(["a", "b"]),
)
data = st.fixed_dictionaries(
    {"serve": st.lists(entries, max_size=2, unique_by=lambda entry: entry["name"])},
    optional={
        "tensor_parallel_size": st.integers(1, 8),
        "streams": st.integers(1, 9),
        "serve_args": st.fixed_dictionaries(
            {}, optional={"max-model-len": st.integers(1, 400_000), "max-num-seqs": st.integers(1, 9)}
        ),
    },
)


def plan(facts: dict[str, Any], values: dict[str, Any], name: str = "box") -> BoxPlan:
    return plan_box(Box(name, values), facts, LAYERS, STACKS, MODELS)


@settings(max_examples=300, deadline=None)
@given(boxes(), data)
def test_no_gpu_is_given_twice_and_no_group_mixes_kinds(facts: dict[str, Any], values: dict[str, Any]) -> None:
    found = plan(facts, values)
    used = [index for instance in found.instances for index in instance.gpus]
    assert len(used) == len(set(used))
    kinds = {gpu["index"]: arch(gpu) for gpu in facts["gpus"]}
    assert all(len({kinds[index] for index in instance.gpus}) <= 1 for instance in found.instances)
    ports = [instance.port for instance in found.instances]
    assert len(ports) == len(set(ports))


@settings(max_examples=300, deadline=None)
@given(boxes(), data)
def test_what_does_not_fit_is_an_error(facts: dict[str, Any], values: dict[str, Any]) -> None:
    found = checked_plan(plan(facts, values))
    sizes = {gpu["index"]: gpu["memory_mib"] for gpu in facts["gpus"]}
    for instance in found.plan.instances:
        memory = instance.memory
        if "cpu" in instance.stack.arch:
            shape = instance.model.architecture
            assert shape is None or found.refused or estimate(shape, 1 << 20, 1, instance.args).concurrency >= 1
            continue
        if len(instance.gpus) < instance.size or memory is None or not memory.fits:
            assert found.refused
        else:
            assert memory.gpu_mib == min(sizes[index] for index in instance.gpus)
            parts = memory.weights_mib + memory.mtp_mib + memory.vision_mib + memory.kv_mib + memory.graphs_mib
            # each part is rounded to a MiB
            assert parts + memory.activations_mib <= memory.budget_mib + 6 <= memory.gpu_mib


@settings(max_examples=100, deadline=None)
@given(boxes(), data)
def test_the_same_box_has_always_the_same_plan(facts: dict[str, Any], values: dict[str, Any]) -> None:
    assert document([checked_plan(plan(facts, values))]) == document([checked_plan(plan(facts, values))])


@settings(max_examples=100, deadline=None)
@given(boxes(), boxes(), boxes(), data, data, data)
def test_one_boxs_data_never_changes_anothers_plan(
    facts: dict[str, Any],
    others: dict[str, Any],
    changed: dict[str, Any],
    values: dict[str, Any],
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    """Two boxes of one fleet, with the same layers and catalogues, planned in one go; then the second is another."""
    first, _ = document(of_fleet(fleet({"a": (facts, values), "b": (others, before)}), ["a", "b"], {}))["boxes"]
    again, _ = document(of_fleet(fleet({"a": (facts, values), "b": (changed, after)}), ["a", "b"], {}))["boxes"]
    assert first == again


LAYERS = {"sm75": [Layer("group_data/sm75.py", {"serve_args": {"max-num-seqs": 2}})]}


def fleet(boxes: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> Fleet:
    """A fleet of boxes with (facts, their own data)."""
    found = {name: Box(name, values) for name, (_, values) in boxes.items()}
    facts = {name: known for name, (known, _) in boxes.items()}
    return Fleet(Path("/fleet"), Path("/fleet/inventory/home.py"), found, {}, LAYERS, STACKS, MODELS, facts)
