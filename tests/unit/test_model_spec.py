"""What the kit's verb `model` is told of the models that come along."""

from __future__ import annotations

from typing import Any

from gpufleet import catalogue, paths
from gpufleet.models import Model
from operations.model_spec import spec
from tests.unit.fleets import gpu_facts, plan, product_stacks


def told(name: str, **settings: Any) -> dict[str, Any]:
    models = catalogue.load(Model, "model", paths.model_folders())
    found = plan(
        gpu_facts(),
        {"serve": [name], "stack": "vllm-0.27.1-sm75", **settings},
        stacks=product_stacks().values(),
        models=models.values(),
    )
    return spec(found, models[name], [])


def test_whoever_drafts_with_a_models_own_head_is_named() -> None:
    name = "qwen3.8-27b-awq"
    assert told(name)["drafting"] == [name]
    assert told(name, serve_args={"speculative-config": None})["drafting"] == []
    assert told("qwen3-0.6b")["drafting"] == []
