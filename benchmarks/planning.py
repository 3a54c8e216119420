"""Seconds to plan and check many boxes: `python benchmarks/planning.py [BOXES]`.

The boxes are those of the lab's scenarios in turn, each with a model and settings of its own, so that no two are equal.
Beside it, as a peer in the same run: reading the facts of as many boxes from JSON, which any tool has to do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from gpufleet import catalogue, paths, scenario
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.plan import Box, plan_box
from gpufleet.planning import checked_plan
from gpufleet.stacks import Stack

TOPOLOGIES = sorted((Path(__file__).resolve().parent.parent / "lab" / "topologies").glob("*.json"))
NAMES = ["qwen3.8-27b-awq", "ornith-1.5-35b-awq", "qwen3.6-27b-dsv4pro-fp8", "qwen3.8-27b-awq-mtp"]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    stacks = catalogue.load(Stack, "stack", paths.stack_folders())
    models = catalogue.load(Model, "model", paths.model_folders())
    layers = {"sm75": [Layer("group_data/sm75.py", {"serve_args": {"max-num-seqs": 2}})]}
    scenarios = [scenario.load(path) for path in TOPOLOGIES]
    facts = [scenarios[number % len(scenarios)] | {"hostname": f"box-{number}"} for number in range(count)]
    texts = [json.dumps(item) for item in facts]

    # Of the processor: what else runs on the machine does not count.
    began = time.process_time()
    for text in texts:
        json.loads(text)
    read = time.process_time() - began

    began = time.process_time()
    plans = [
        plan_box(
            Box(f"box-{number}", {"serve": [NAMES[number // 12 % 4]], "serve_args": {"max-model-len": 65536 + number}}),
            item,
            layers,
            stacks,
            models,
        )
        for number, item in enumerate(facts)
    ]
    planned = time.process_time() - began
    began = time.process_time()
    for plan in plans:
        checked_plan(plan)
    checked = time.process_time() - began
    print(
        f"{count} boxes, {sum(len(plan.instances) for plan in plans)} instances: planned in {planned:.2f} s, ", end=""
    )
    print(
        f"checked by the rules in {checked:.2f} s; reading their facts took {read:.3f} s ({planned / read:.0f} x less)"
    )


if __name__ == "__main__":
    main()
