"""Rules about flags and variables of instances."""

from __future__ import annotations

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule

# What vLLM is given by the plan itself; a second value beside it would be a silent contradiction.
OURS = ("port", "config", "model", "tensor-parallel-size")


@rule("flag-is-ours", "error")
def flag_is_ours(plan: BoxPlan) -> Said:
    """A flag that has a setting of its own: two places for one value drift apart."""
    for source, args in [("serve_args", plan.settings.serve_args)] + [
        (f"serve entry {entry.model}", entry.args) for entry in plan.settings.serve if not isinstance(entry, str)
    ]:
        for flag in sorted(set(args) & set(OURS)):
            yield f"{source} sets {flag}", f"use the setting {flag.replace('-', '_')} of the serve entry"


@rule("secret-in-settings", "error")
def secret_in_settings(plan: BoxPlan) -> Said:
    """Settings end up in a release, which everybody on the box can read and whose digest is no secret."""
    for instance in plan.instances:
        found = [flag for flag in ("api-key", "hf-token") if instance.args.get(flag)]
        found += [name for name in ("VLLM_API_KEY", "HF_TOKEN") if instance.env.get(name)]
        for name in found:
            yield f"{instance.name} has {name} in its settings", "take it out; put a proxy with the key before the port"


@rule("contradicting-switch", "error")
def contradicting_switch(plan: BoxPlan) -> Said:
    """`x: true` beside `no-x: true`: which one wins depends on the order of lines."""
    for instance in plan.instances:
        for flag, value in instance.args.items():
            if isinstance(value, bool) and instance.args.get(f"no-{flag}") is value:
                yield f"{instance.name} has both {flag} and no-{flag}", f"write `{flag}: false` instead of no-{flag}"


@rule("value-misread", "error")
def value_misread(plan: BoxPlan) -> Said:
    """What vLLM's loader reads as something else (0.27.1): a word after a switch turns it on and becomes the model."""
    for instance in plan.instances:
        for flag, value in instance.args.items():
            if isinstance(value, str) and value.lower() in ("true", "false"):
                yield f"{instance.name}: {flag} is the text {value!r}", f"write {flag}: True or False, without quotes"
            if isinstance(value, str) and value.startswith("-"):
                yield f"{instance.name}: {flag} is {value!r}, which is read as a flag", "give a value without the dash"


@rule("speculative-tokens", "warning")
def speculative_tokens(plan: BoxPlan) -> Said:
    """A speculative method without a number of tokens, or the other way round, is refused by the engine at start."""
    for instance in plan.instances:
        config = instance.args.get("speculative-config")
        if isinstance(config, dict) and not config.get("num_speculative_tokens"):
            yield (
                f"{instance.name}: speculative-config has no num_speculative_tokens",
                "set it (1 to 3 for an MTP head)",
            )
