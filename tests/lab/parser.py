"""vLLM's own parser on a box: what it makes of a configuration, and what a plan says that it should."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from gpufleet.inventory import load
from gpufleet.layers import Layer
from gpufleet.plan import BoxPlan, plan_box
from lab import state
from tests.golden.environments import NAMESPACE
from tests.lab.support import SmallLab
from tests.unit.fleets import cpu_facts, plan


def namespaces(lab: SmallLab, pages: list[str], *options: str) -> list[dict[str, Any]]:
    """What vLLM's own parser, in the runtime on a box, makes of configurations."""
    root = lab.where.boxes / "lab-1" / "root" / "root"
    (root / "namespace.py").write_text(NAMESPACE.read_text())
    names = [f"golden-{number}.yaml" for number in range(len(pages))]
    for name, page in zip(names, pages, strict=True):
        (root / name).write_text(page)
    python = "cd /root && VLLM_LOGGING_LEVEL=ERROR $(ls -d /opt/gpufleet/runtimes/*)/bin/python"
    words = " ".join([*options, *names])
    lines = lab.sh("lab-1", f"{python} namespace.py {words} 2>/dev/null").splitlines()
    return [json.loads(line) for line in lines[-len(pages) :]]


def namespace(lab: SmallLab, page: str) -> dict[str, Any]:
    return namespaces(lab, [page])[0]


def part_of(got: Any, wanted: Any) -> Any:
    """What `got` says of the keys in `wanted`: the parser fills the others with its defaults."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return {key: part_of(value, wanted[key]) for key, value in got.items() if key in wanted}
    return got


def assert_read(found: dict[str, Any], args: dict[str, Any]) -> None:
    """Each flag of the plan has the plan's value in the namespace; one that is null keeps the parser's own default."""
    for flag, wanted in args.items():
        negative = flag.startswith("no-") and isinstance(wanted, bool)
        name = flag.removeprefix("no-").replace("-", "_") if negative else flag.replace("-", "_")
        got = found[name]
        if isinstance(wanted, dict) and not isinstance(got, dict):
            got = json.loads(got)
        if isinstance(wanted, str) and isinstance(got, list) and wanted.startswith("["):
            wanted = json.loads(wanted)
        if negative:
            wanted = not wanted
        if name == "served_model_name" and isinstance(wanted, str):
            wanted = [wanted]
        assert part_of(got, wanted) == wanted, f"{flag}: the plan says {wanted!r}, the parser reads {got!r}"


def recipe() -> BoxPlan:
    """Flags of the reference boxes, with every kind of value: numbers, words, switches on and off, lists, mappings."""
    args = {
        "dtype": "half",
        "kv-cache-dtype": "fp8_e4m3",
        "max-model-len": 200000,
        "max-num-seqs": 3,
        "gpu-memory-utilization": 0.92,
        "enable-prefix-caching": False,
        "enable-chunked-prefill": True,
        "async-scheduling": False,
        "enforce-eager": False,
        "language-model-only": True,
        "disable-custom-all-reduce": True,
        "reasoning-parser": "qwen3",
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_coder",
        "cudagraph-capture-sizes": [4, 8, 12],
        "allowed-origins": '["http://a.example", "*"]',  # the parser wants this list as JSON
        "additional-config": {"gdn_prefill_backend": "flashqla_legacy", "say": 'don\'t "quote" ü'},
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"},
        "compilation-config": {"mode": 3, "pass_config": {"fuse_norm_quant": False}},
        "override-generation-config": {"temperature": 0.6, "top_k": 20, "min_p": 0},
        "seed": None,
    }
    return plan(cpu_facts(), layers={"all": [Layer("group_data/all.py", {"serve_args": args})]})


def planned(lab: SmallLab, folder: Path, name: str) -> dict[str, Any]:
    """The flags that the plan of one box says, made from the owner's folder and the box's facts as deploys do."""
    source = folder / "inventory" / "home.py"
    (line,) = [line for line in source.read_text().splitlines() if line.startswith("boxes = ")]
    models = Path(state.load(lab.where).model["catalogue"]).parent
    fleet = load(ast.literal_eval(line.removeprefix("boxes = ")), source, [models])
    found = plan_box(fleet.boxes[name], fleet.facts[name], fleet.layers, fleet.stacks, fleet.models)
    return found.instances[0].args
