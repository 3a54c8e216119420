"""Whether a checkpoint goes with the flags that it is served with."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.checkpoint import tensors
from gpufleet.checks.facts import Facts, Problem, Use
from gpufleet.memory_args import mapping
from gpufleet.models import Model
from gpufleet.rules.kv import SERVES

# What is computed in with such weights (get_supported_act_dtypes, vLLM 0.27.1); float32 is refused.
QUANTISED = ("awq", "gptq", "fp8", "nvfp4")
# `kv_cache_quant_algo` of ModelOpt's checkpoints becomes the KV cache's type where the flag says `auto`
# (vllm/utils/torch_utils.py, 0.27.1).
FP8_SINCE = ("sm89", "sm90", "sm100", "sm103", "sm120", "sm121")


def agrees(facts: Facts, model: Model | None, use: Use) -> Iterator[Problem]:
    """Flags and names of one use, held against what the files say. Nothing is said of what they do not tell."""
    if use.engine == "vllm":
        yield from _quantization(facts, use)
        yield from _kv(facts, use)
        yield from _speculation(facts, use)
    if model is not None and use.names:
        lacking = [name for name in (model.served_name, *model.aliases) if name not in use.names]
        for name in lacking:
            cause = use.said(f"it answers to {', '.join(use.names)}; clients that ask for {name} get 404")
            yield Problem("error", "", cause, "take served-model-name out, or correct served_name and aliases")


def _quantization(facts: Facts, use: Use) -> Iterator[Problem]:
    given, found = use.args.get("quantization"), facts.method
    right = SERVES.get(given) if isinstance(given, str) else None
    if right is not None and found not in right:
        cause = use.said(f"quantization is {given}, the checkpoint is {found} (config.json)")
        take_out = 'take it out, the engine reads it from the checkpoint: serve_args = {"quantization": None}'
        # vLLM quantises a checkpoint in 16 bits itself when it is told `fp8`.
        if not (found == "none" and given == "fp8"):
            yield Problem("error", "", cause, take_out)
    if use.args.get("dtype") in ("float32", "float") and found in QUANTISED:
        cause = use.said(f"dtype is float32, and {found} weights are computed with in 16 bits only")
        yield Problem("error", "", cause, 'set serve_args = {"dtype": "half"}')


def _kv(facts: Facts, use: Use) -> Iterator[Problem]:
    scheme = facts.quantization
    if (
        str(scheme.get("quant_method") or "").startswith("modelopt")
        and use.args.get("kv-cache-dtype", "auto") == "auto"
    ):
        algorithm = str(scheme.get("kv_cache_quant_algo") or "").upper()
        old = sorted(use.archs - set(FP8_SINCE) - {"cpu"})
        if algorithm == "FP8" and old and not (old == ["sm75"] and "fp8-kv-sm75" in use.provides):
            cause = use.said(f"the checkpoint asks for an FP8 KV cache, and {old[0]} has none with this stack")
            yield Problem("error", "", cause, 'set serve_args = {"kv-cache-dtype": "float16"}')


def drafts_as_config_says(use: Use) -> bool:
    """Whether an MTP head is used, and built quantised or not as config.json has it: patched engines look at it."""
    return use.engine == "vllm" and bool(_by_mtp(use)) and "mtp-bf16-draft" not in use.provides


def _by_mtp(use: Use) -> str:
    """The method, when it is one of MTP."""
    method = str(mapping(use.args.get("speculative-config")).get("method") or "")
    return method if method == "mtp" or method.endswith("_mtp") else ""


def _speculation(facts: Facts, use: Use) -> Iterator[Problem]:
    method = _by_mtp(use)
    headless = not any(tensors.MTP.search(name) for name in facts.headers)
    announced = not isinstance(facts.read, str) and facts.read.architecture.mtp is not None
    if method and facts.headers and headless and not announced:
        cause = use.said(f"it speculates by {method}, and there are no mtp.* tensors")
        remedy = 'take a checkpoint with its head, or serve_args = {"speculative-config": None}'
        yield Problem("error", "", cause, remedy)
