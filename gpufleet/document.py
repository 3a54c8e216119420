"""A plan as data: the JSON of `gpufleet plan --json`, schema 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpufleet.instance import Instance
from gpufleet.planning import Planned
from gpufleet.render import release
from gpufleet.spelling import given


def document(found: Sequence[Planned]) -> dict[str, Any]:
    """The document of several boxes."""
    return {"schema": 1, "boxes": [_box(item) for item in found]}


def _box(item: Planned) -> dict[str, Any]:
    plan = item.plan
    return {
        "name": plan.name,
        "traits": plan.traits,
        "facts_at": plan.facts.get("at"),
        "cuda_toolkits": plan.toolkits,
        "idle_gpus": plan.idle_gpus,
        "instances": [_instance(instance) for instance in plan.instances],
        "findings": [asdict(finding) for finding in item.findings],
        "silenced": [asdict(finding) for finding in item.silenced],
    }


def _instance(item: Instance) -> dict[str, Any]:
    return {
        "name": item.name,
        "model": item.model.name,
        "stack": item.stack.name,
        "runtime": item.runtime.name,
        "cuda_toolkit": item.cuda_toolkit,
        "gpus": list(item.gpus),
        "link": item.link,
        "port": item.port,
        "streams": item.streams,
        "traits": list(item.traits),
        "args": given(item.args),
        "env": item.env,
        "digest": release(item).digest,
        "memory": asdict(item.memory) | {"fits": item.memory.fits} if item.memory else {},
        "because": item.because,
        "replaces": list(item.replaces),
    }
