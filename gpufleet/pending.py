"""What a deploy would do on a box that was just looked at: plan, findings, changes; as deploy.py decides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.changes import Changes, changes
from gpufleet.fleet import Fleet
from gpufleet.hardware import differences
from gpufleet.plan import BoxPlan, plan_box
from gpufleet.rules import Finding, check
from gpufleet.whole import whole

OF_OTHERS = ("GF611", "GF613", "GF615")  # see gpufleet.rules.units and .replacing


@dataclass(frozen=True)
class Pending:
    """One box: `refused` are the findings for which a deploy would change nothing there."""

    plan: BoxPlan
    findings: list[Finding]
    changes: Changes

    @property
    def refused(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def of_others(self) -> list[Finding]:
        """What somebody put beside a unit of ours, or started again: drift that no deploy takes away."""
        return [finding for finding in self.findings if finding.code in OF_OTHERS and finding.level != "error"]


def pending(fleet: Fleet, name: str, facts: Mapping[str, Any]) -> Pending:
    """Raises ConfigError when the settings of a box do not fit together, BoxError when the look told too little."""
    whole(name, facts)
    changed = differences(fleet.facts[name], facts) if name in fleet.facts else []
    plan = plan_box(fleet.boxes[name], facts, fleet.layers, fleet.stacks, fleet.models, {}, hardware_changes=changed)
    return Pending(plan, check(plan, deploying=True), changes(plan))
