"""Cases for the tests of rules: a box, what is wanted of it, and what a rule must say of that."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpufleet.architecture import Architecture
from gpufleet.plan import BoxPlan
from gpufleet.rules import Finding, check
from gpufleet.rules.base import Level
from gpufleet.stacks import Stack
from tests.unit.architectures import QWEN_27B
from tests.unit.fleets import gpu_facts, model, plan, stack

GEFORCE = {
    (7, 0): "Tesla V100-SXM2-32GB",
    (7, 5): "NVIDIA GeForce RTX 2080 Ti",
    (8, 6): "NVIDIA GeForce RTX 3090",
    (12, 0): "NVIDIA GeForce RTX 5090",
    (6, 1): "NVIDIA GeForce GTX 1080 Ti",
}
# Qwen3.8-27B with 4 bit weights, as its config.json and the headers of its files tell.
SHAPE: dict[str, Any] = {
    **QWEN_27B,
    "vision_mib": 0,
    "quantization": "awq",
    "weights_mib": 17000,
    "mtp": {"mib": 810, "tensors": 15},
}
MTP = {"method": "mtp", "num_speculative_tokens": 3}


class Case(NamedTuple):
    """`rule` must be found with this level, `says` be a part of its message or remedy."""

    rule: str
    level: Level
    says: str
    plan: BoxPlan


def cards(count: int = 2, capability: tuple[int, int] = (7, 5), link: str = "NV2", **more: Any) -> dict[str, Any]:
    """Facts of a box with equal cards of their true name; `of_each` goes into each of them."""
    of_each = more.pop("of_each", {})
    facts = {**gpu_facts(capability, count, link), **more}
    for gpu in facts["gpus"]:
        gpu.update({"name": GEFORCE[capability], "memory_mib": 22528, **of_each})
    return facts


def engine(*archs: str, name: str = "vllm-0.27.1-test", **more: Any) -> Stack:
    """A stack of vLLM for such cards, with graphs; `provides` and `versions` as given."""
    settings = {"arch": list(archs), "args": {"dtype": "half"}, "cuda_toolkit": "12-8", **more}
    return stack(name, **settings)


def shaped(**more: Any) -> dict[str, Any]:
    """Key of a model's page: an architecture like Qwen3.8-27B's."""
    return {"architecture": Architecture.model_validate({**SHAPE, **more}).model_dump()}


def served(
    facts: dict[str, Any],
    by: Stack,
    args: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **page: Any,
) -> BoxPlan:
    """The plan of a box that serves one model with these flags; `page` goes into the model's."""
    # Without `max-model-len` of the model's page: flags are what the test gives.
    found = model(**{"args": {}, **page})
    settings = {"stack": by.name, "serve_args": args or {}, **(data or {})}
    return plan(facts, settings, stacks=[by], models=[found])


def said(found: BoxPlan, rule: str) -> list[Finding]:
    """The findings of one rule, by code or name."""
    return [finding for finding in check(found) if rule in (finding.code, finding.name)]


def assert_fires(case: Case) -> None:
    """The rule says so, with a message and a remedy of one line each."""
    found = said(case.plan, case.rule)
    assert found, sorted(finding.name for finding in check(case.plan))
    assert {finding.level for finding in found} == {case.level}
    assert any(case.says in finding.message + " " + finding.remedy for finding in found), found
    for finding in found:
        assert finding.message and finding.remedy and "\n" not in finding.message + finding.remedy
        assert not finding.remedy.endswith(("?", ".", "!")), "a full stop is put after it"


def identify(case: Case) -> str:
    return f"{case.rule}-{case.level}-{case.says}"[:60]
