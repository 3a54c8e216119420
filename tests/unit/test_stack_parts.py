"""What pages of stacks say of sources and of other authors' patches, and what that does to a runtime's name."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import planning, scenario
from gpufleet.runtime import Runtime
from gpufleet.stacks import Stack
from tests.command import REPOSITORY
from tests.unit.fleets import product_stacks

OURS, THEIRS = "vllm-0.27.1-sm75", "vllm-0.27.1-sm75-zyyuc"
STACKS = product_stacks()


def changed(stack: Stack, part: str, **more: Any) -> Stack:
    """A stack whose first wheel or source says otherwise."""
    first = getattr(stack, part)[0].model_copy(update=more)
    return stack.model_copy(update={part: [first, *getattr(stack, part)[1:]]})


def name(stack: Stack) -> str:
    return Runtime(stack, "3.12", "13-0", ("sm75",)).name


@pytest.mark.parametrize("part", ["wheels", "sources"])
def test_every_declared_sum_is_in_the_name_of_the_runtime(part: str) -> None:
    stack = STACKS[THEIRS]
    theirs = getattr(stack, part)[0].patches_from
    assert theirs is not None
    other_file = theirs.files[0].model_copy(update={"sha256": "0" * 64})
    others = [
        changed(stack, part, sha256="0" * 64),
        changed(stack, part, patches_from=theirs.model_copy(update={"files": [other_file]})),
        changed(stack, part, patches_from=theirs.model_copy(update={"commit": "0" * 40})),
        changed(stack, part, patches_from=None),
    ]
    assert len({name(stack), *map(name, others)}) == 5


def test_another_commit_of_a_source_makes_another_runtime() -> None:
    assert name(STACKS[OURS]) != name(changed(STACKS[OURS], "sources", commit="0" * 40))


def test_the_other_authors_stack_is_ours_but_for_the_patches() -> None:
    """Whoever changes one page has to change the other: two stacks that differ in more cannot be compared."""
    ours, theirs = STACKS[OURS].model_dump(), STACKS[THEIRS].model_dump()
    for page in (ours, theirs):
        for part in (*page["wheels"], *page["sources"]):
            del part["patches"], part["patches_from"]
    differing = {key for key in ours if ours[key] != theirs[key]}
    # Their FlashQLA is compiled at the first request, and their patches write other lines into the log.
    assert differing == {"name", "title", "default_for", "provides", "compile", "log"}
    assert set(ours["provides"]) ^ set(theirs["provides"]) == {"mtp-bf16-draft", "mtp-bf16-fc"}


def test_both_75_stacks_have_flashqla_from_one_commit() -> None:
    sources = [STACKS[stack].sources[0] for stack in (OURS, THEIRS, "vllm-0.24.0-sm75")]
    assert {(item.git, item.commit, item.sha256) for item in sources} == {
        (
            "https://github.com/weicj/FlashQLA-SM70-SM75",
            "3ab27d77d8ca01d7a4718903b726add1a8886c0e",
            "dfef0abff515c39d5e62a0942b24462b3572fc9675c1f81b2cc673585cf3fc56",
        )
    }


@pytest.mark.parametrize(
    ("model", "stack", "fires"),
    [
        ("qwen3.8-27b-awq", THEIRS, False),
        ("ornith-1.5-35b-awq", THEIRS, True),  # a mixture of experts
        ("ornith-1.5-35b-awq", OURS, False),
    ],
)
def test_where_only_the_drafts_fc_is_unquantised_it_is_said(model: str, stack: str, fires: bool) -> None:
    topology = REPOSITORY / "lab" / "topologies" / "dual-2080ti-nv2.json"
    overrides = planning.overrides([f"stack={stack}"], [model])
    (found,) = planning.of_topology(scenario.page(topology), str(topology), overrides)
    codes = {finding.code for finding in found.findings}
    assert ("GF525" in codes) == fires
    assert not {"GF506", "GF511", "GF512"} & codes, "all that it is told, the stack knows"
