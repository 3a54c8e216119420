"""Checks of a model's own files: against its page, against the flags it is served with, and for use. No I/O.

Facts come from hostkit.model_check, on a box or here; `gpufleet models check` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet.checks import page, serving, template, tokenizer
from gpufleet.checks.facts import Facts, Problem, Use
from gpufleet.models import Model

__all__ = ["Facts", "Problem", "Use", "problems"]


def problems(facts: Facts, model: Model | None, uses: Sequence[Use], own_head: bool = True) -> list[Problem]:
    """All that is wrong, errors first, each once; what the files are damaged in comes before what they say.

    + model: None: a folder that no page is about; + uses: how it is to be served
    + own_head: whether the MTP head that is there is the one of the page; not so before it is replaced
    """
    found = dict.fromkeys([*facts.damage, *_of_texts(facts, model, uses, own_head)])
    return sorted(found, key=lambda each: each.level != "error")


def _of_texts(facts: Facts, model: Model | None, uses: Sequence[Use], own_head: bool) -> Iterator[Problem]:
    yield from facts.unread
    if facts.config:
        yield from page.tensors_agree(facts)
        if model is not None:
            yield from page.agrees(facts, model, own_head)
        if own_head and any(serving.drafts_as_config_says(use) for use in uses):
            yield from page.notes(facts)
        for use in uses:
            yield from serving.agrees(facts, model, use)
    yield from tokenizer.known_good(facts)
    yield from template.renders(facts, uses, model)
