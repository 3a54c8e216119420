"""Rules about numbers that no engine can work with."""

from __future__ import annotations

import math
import re
from typing import Any

from gpufleet.dialect import DIALECTS
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import source_of

# Flags that count something, in the names of vLLM and LMDeploy; what is said of them in words (`auto`, `200k`) is not
# judged. -1 is vLLM's own word for the longest length that fits.
COUNTS = {
    "block-size",
    "max-batch-size",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "session-len",
}
AUTO = {"max-model-len": -1}


@rule(
    "GF548",
    "count-too-small",
    level="error",
    source="the engines' own checks at start",
    remedy="A whole number, 1 or more.",
)
def count_too_small(plan: BoxPlan) -> Said:
    """A flag that counts requests, tokens or lengths is zero, negative, no whole number or no number at all: the engine
    ends at start.
    """
    for instance in plan.instances:
        for flag in sorted(COUNTS & set(instance.args)):
            value = instance.args[flag]
            if (_wrong(value) or _no_count(value)) and value != AUTO.get(flag):
                source = source_of(instance.flags, flag)
                yield f"{instance.name}: {flag} is {value} ({source})", f"set {flag} to a whole number, 1 or more"
        speculative = DIALECTS[instance.stack.engine].speculative
        config = instance.args.get(speculative) if speculative else None
        tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
        if tokens and _wrong(tokens):
            yield f"{instance.name}: num_speculative_tokens is {tokens}", "set it to a whole number, 1 or more"


def _no_count(value: Any) -> bool:
    """Of a text: whether it is neither a number, as `8192` or `200k`, nor the engine's `auto`."""
    return isinstance(value, str) and not re.fullmatch(r"auto|\d+(\.\d+)?[kKmMgG]?", value)


def _wrong(value: Any) -> bool:
    """Of a number only: a switch, a text and null are other rules'."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not math.isfinite(value) or value < 1 or value != int(value)
