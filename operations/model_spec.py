"""What the kit's verb `model` is told."""

from __future__ import annotations

from typing import Any

from gpufleet.models import Model
from gpufleet.plan import BoxPlan
from gpufleet.wheelhouse.mirror import of_model


def spec(plan: BoxPlan, model: Model) -> dict[str, Any]:
    """What the kit's verb `model` needs to put one model of the plan in place."""
    source = model.source
    return {
        "name": model.name,
        "revision": model.directory,
        "instances": [item.name for item in plan.instances if item.model.name == model.name],
        "http": of_model(source.http, plan.settings.mirrors.models),
        "path": source.path,
        "files": {name: {"size": file.size, "sha256": file.sha256} for name, file in source.files.items()},
    }
