"""What the kit's verb `runtime` is told: the plan of a box and the files that a runtime is made of, as one spec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpufleet.distributions import versions
from gpufleet.environment import CACHES, always
from gpufleet.instance import Instance
from gpufleet.plan import BoxPlan
from gpufleet.runtime import Runtime, archs_of, script_path
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.items import Item

# Home and caches of a verification, see hostkit.verify. Not /tmp: where that is mounted noexec, nothing compiled loads.
SCRATCH = "/var/cache/gpufleet/verify"


def spec(
    plan: BoxPlan, runtime: Runtime, items: Iterable[Item], compiled: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The spec of `runtime` on this box.

    + items: all files it is made of, uv's wheel among them, each in the box's store when the verb is called
    + compiled: what a like box answered as `compiled`, when that archive is in the store, too
    Raises OSError when a lock or a script is not there, ValueError for a file that is no wheel.
    """
    stack = runtime.stack
    assert stack.uv is not None, "a stack without lock is not installed"
    files = [{"filename": item.filename, "sha256": item.sha256, "size": item.size} for item in items]
    (uv,) = [item for item in files if item["sha256"] == stack.uv.sha256]
    instances = [item for item in plan.instances if item.runtime.name == runtime.name]
    cards = [gpu for gpu in plan.facts.get("gpus") or [] if archs_of([gpu], stack)]
    return {
        "name": runtime.name,
        "python": runtime.python,
        "uv": {"filename": uv["filename"], "sha256": uv["sha256"]},
        "files": files,
        "lock": stack.lock_text(runtime.python),
        "toolkit": runtime.toolkit or next((item.cuda_toolkit for item in instances), None),
        "archs": list(archs_of(cards, stack)),
        "torch_cuda": torch_cuda(stack),
        "gpus": len(cards),
        "compile": [
            {"name": step.name, "script": script_path(stack, step.script).read_text("utf-8"), "into": step.into}
            for step in stack.compile
        ],
        "compiled": dict(compiled) if compiled else None,
        "verify": stack.verify,
        "versions": versions(str(item["filename"]) for item in files if item is not uv),
        "env": environment(instances[0], cards) if instances else {},
        "instances": [item.name for item in instances],
        "facts": {"stack": stack.name, "runtime": runtime.name, "python": runtime.python},
    }


def torch_cuda(stack: Stack) -> str | None:
    """The CUDA that the page's torch is built for: `13.0` of `2.13.0+cu130`, empty of `+cpu`; None: it does not say."""
    said = stack.versions.torch if stack.versions else None
    local = (said or "").partition("+")[2]
    if local == "cpu":
        return ""
    known = re.fullmatch(r"cu(\d+)(\d)", local)
    return f"{known[1]}.{known[2]}" if known else None


def environment(instance: Instance, cards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The variables to verify with: those that stack and plan give the service, but for all cards of the kind.

    What an owner set stays out: it is of one instance, and may be a secret. Caches and home are scratch.
    """
    sources = {key: instance.because.get(f"env.{key}", "") for key in instance.env}
    kept = {key: value for key, value in instance.env.items() if sources[key].startswith(("stack ", "computed: "))}
    scratch = {key: f"{SCRATCH}/{folder}" for key, folder in CACHES.items()}
    return {**kept, **scratch, "HOME": SCRATCH, **(always(cards) if cards else {})}
