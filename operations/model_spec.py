"""What boxes are told of a model: where its files may lie already, and what the kit's verb `model` makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet.models import File, Model
from gpufleet.plan import BoxPlan
from gpufleet.rules.look import by_vllm, uses_mtp
from gpufleet.wheelhouse.items import Item

PLACE = "models"  # of the box's store: hostkit.store


def spec(plan: BoxPlan, model: Model, items: Sequence[Item]) -> dict[str, Any]:
    """What the verb `model` needs to put one model of the plan in place; `items` are those that came for it."""
    names = {item.sha256: item.filename for item in items}

    def stored(file: File) -> dict[str, Any]:
        return {"size": file.size, "sha256": file.sha256, "filename": names[file.sha256]}

    there = model.source.path is not None
    return {
        "name": model.name,
        "directory": model.directory,
        "instances": [item.name for item in plan.instances if item.model.name == model.name],
        "path": model.source.path,
        "files": {} if there else {name: stored(file) for name, file in model.source.files.items()},
        "head": _head(model, names),
        "drafting": _drafting(plan, model),
    }


def _drafting(plan: BoxPlan, model: Model) -> list[str]:
    """Instances that draft with the model's own MTP head, of the families whose heads have tensors of that name."""
    family = model.architecture.family if model.architecture else ""
    if not family.startswith(("qwen3_5", "qwen3_next")):
        return []
    return [item.name for item in by_vllm(plan) if item.model.name == model.name and uses_mtp(item)]


def _head(model: Model, names: Mapping[str, str]) -> dict[str, Any] | None:
    if model.mtp_head is None:
        return None
    source, file = model.mtp_head.source, model.mtp_head.file
    if source.path is not None:
        return {"file": file, "path": f"{source.path}/{file}"}
    known = source.files[file]
    return {"file": file, "size": known.size, "sha256": known.sha256, "filename": names[known.sha256]}


def places(model: Model) -> dict[str, list[str]]:
    """Where below `models/` its files may lie, by sha256: of an earlier version that kept them in no store, and of one
    whose fetch was cut off."""
    found: dict[str, list[str]] = {}
    for directory in dict.fromkeys([model.directory, model.revision]):
        for path, file in model.source.files.items():
            where = [f"{model.name}/{directory}{end}/{path}" for end in ("", ".incoming")]
            found.setdefault(file.sha256, []).extend(where)
    return found
