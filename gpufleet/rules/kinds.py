"""Rules about values of the wrong kind: the engine refuses them at start, or takes them for something else."""

from __future__ import annotations

import json
import re
from typing import Any

from gpufleet.errors import nearest
from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, mapping, number, source_of

# Keys and methods of vLLM's SpeculativeConfig, 0.24.0 and 0.27.1 (vllm/config/speculative.py); `*_mtp` are all taken.
SPECULATIVE_KEYS = {
    "attention_backend",
    "code_revision",
    "disable_padded_drafter_batch",
    "draft_load_config",
    "draft_sample_method",
    "draft_tensor_parallel_size",
    "enforce_eager",
    "kv_cache_dtype",
    "max_model_len",
    "method",
    "model",
    "moe_backend",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "parallel_drafting",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "quantization",
    "rejection_sample_method",
    "revision",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_min_token_prob",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rates",
    "tensor_parallel_size",
    "use_heterogeneous_vocab",
    "use_local_argmax_reduction",
}
METHODS = {
    "custom_class",
    "dflash",
    "draft_model",
    "dspark",
    "eagle",
    "eagle3",
    "extract_hidden_states",
    "medusa",
    "mlp_speculator",
    "mtp",
    "ngram",
    "ngram_gpu",
    "suffix",
}
TOKENS = "num_speculative_tokens"
SHARES = {"gpu-memory-utilization", "cache-max-entry-count"}


@rule(
    "GF549",
    "value-of-wrong-kind",
    level="error",
    source="the engines' own parsers: argument: invalid value",
    remedy="True or False for a switch, a mapping for JSON, one number or text for the others.",
)
def value_of_wrong_kind(plan: BoxPlan) -> Said:
    """A switch has a word or a number, a flag that takes JSON has something else, a plain flag a switch's value or a
    list, or `num_speculative_tokens` is no whole number. The engine refuses it at start, or reads something that was
    not meant.
    """
    for instance in plan.instances:
        table = instance.stack.table
        for flag, value in instance.args.items():
            if value is None or table is None or not table.knows_flag(flag):
                continue
            wanted = _wanted(table.kind(flag), flag, value)
            if wanted:
                shown, source = json.dumps(value, ensure_ascii=False), source_of(instance.flags, flag)
                yield f"{instance.name}: {flag} is {shown} ({source})", f"give {flag} {wanted}"
    for instance in by_vllm(plan):
        given, key = mapping(instance, "speculative-config").get(TOKENS), f"speculative-config.{TOKENS}"
        if number(given) != given:
            shown, source = json.dumps(given, ensure_ascii=False), source_of(instance.flags, key)
            yield f"{instance.name}: {key} is {shown} ({source})", f"give {TOKENS} a whole number, such as 2"


def _wanted(kind: str, flag: str, value: Any) -> str | None:
    """What a flag takes, when the value is not that."""
    if kind == "switch":
        # The words "true" and "false" are GF504's.
        right = isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false"))
        return None if right else "True or False, without quotes"
    if kind == "json":
        return None if isinstance(value, dict | list) or _is_json(value) else "a mapping"
    if isinstance(value, bool | dict) or (isinstance(value, list) and kind == "value"):
        return "one number or text"
    if flag in SHARES and isinstance(value, str) and not re.fullmatch(r"\d*\.?\d+", value):
        return "a number such as 0.9"
    return None


def _is_json(value: Any) -> bool:
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict | list)
    except ValueError:
        return False


@rule(
    "GF528",
    "speculative-unknown",
    level="error",
    source="vllm/config/speculative.py of 0.24.0 and 0.27.1",
    remedy="The nearest right name.",
)
def speculative_unknown(plan: BoxPlan) -> Said:
    """A key of `speculative-config`, or the method it names, is none that vLLM knows; the parser takes it, and the
    engine ends at start.
    """
    for instance in by_vllm(plan):
        config = instance.args.get("speculative-config")
        if not isinstance(config, dict) or instance.stack.table is None:
            continue
        for key in config:
            if key not in SPECULATIVE_KEYS:
                near = nearest(key, SPECULATIVE_KEYS).strip("; ").removesuffix("?")
                yield f"{instance.name}: speculative-config has no {key}", near or f"take {key} out"
        method = config.get("method")
        if isinstance(method, str) and method not in METHODS and not method.endswith("_mtp"):
            near = nearest(method, METHODS).strip("; ").removesuffix("?")
            yield f"{instance.name}: {method} is no method of speculation", near
