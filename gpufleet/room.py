"""Room on a box's disks: what a deploy still brings, and where it goes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.paths import ROOT
from gpufleet.plan import BoxPlan

MODELS = f"{ROOT}/models"
# What apt, uv's environment and the releases take beside the stacks' own figures.
SPARE_MIB = 1024


def needs(plan: BoxPlan) -> dict[str, int]:
    """MiB that the runtimes and models of a plan that are not there yet take, by the path of the facts' `disks`.

    What a deploy that was cut off has brought counts as there.
    """
    home, models = _disk(plan, ROOT), models_at(plan)
    disk = _disk(plan, models)
    apart = disk.get("mount") not in (None, home.get("mount"))
    installed, placed = plan.facts.get("runtimes") or {}, plan.facts.get("models") or {}
    found = dict.fromkeys([ROOT, models], 0)
    found[ROOT] += sum(
        item.stack.disk_mib for item in plan.runtimes if not installed.get(item.name, {}).get("complete")
    )
    lacking = [model for model in plan.models if not placed.get(f"{model.name}/{model.directory}", {}).get("complete")]
    coming = disk.get("coming_mib") or 0
    found[models if apart else ROOT] += max(0, sum(model.size_mib for model in lacking) - coming)
    return found


def models_at(plan: BoxPlan) -> str:
    """The path whose disk the models' files go to: of `host.models`, as far as the look told of it."""
    wanted = plan.settings.host.models
    return wanted if wanted and _disk(plan, wanted) else MODELS


def free_mib(plan: BoxPlan, path: str) -> int | None:
    found = _disk(plan, path).get("free_mib")
    return int(found) if found is not None else None


def _disk(plan: BoxPlan, path: str) -> Mapping[str, Any]:
    return (plan.facts.get("disks") or {}).get(path) or {}
