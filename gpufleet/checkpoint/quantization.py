"""How a checkpoint is quantised, and which modules are left as they were, as its config says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from gpufleet.checkpoint.config import Config, UnknownFact
from hostkit.safetensors import brief

Method = Literal["none", "awq", "gptq", "fp8", "compressed-tensors", "nvfp4", "mxfp4"]
PLAIN: Mapping[str, Method] = {
    "awq": "awq",
    "gptq": "gptq",
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "modelopt_fp4": "nvfp4",
}
# Lists of modules that are left as they were, by the name that each tool gives them.
IGNORED = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "exclude_layers")
# The only blocks that are quantised, by AutoRound.
ONLY = ("block_name_to_quantize", "to_quant_block_names")


def section(config: Config, beside: Any = None) -> Mapping[str, Any] | None:
    """What says how it is quantised: of config.json, of the part of the language model, or of ModelOpt's own file.

    + beside: what hf_quant_config.json holds, where there is one
    """
    for holder in (config.whole, config.text):
        for name in ("quantization_config", "compression_config"):
            if isinstance(found := holder.get(name), dict):
                return found
    if isinstance(beside, dict) and isinstance(found := beside.get("quantization"), dict):
        return {"quant_method": "modelopt", **found}
    return None


def method(found: Mapping[str, Any] | None) -> Method:
    """The kind, as `architecture.quantization` has it. Raises UnknownFact for one that no page can say."""
    if found is None:
        return "none"
    said = str(found.get("quant_method") or ("modelopt" if "quant_algo" in found else "")).lower()
    if said in PLAIN:
        return PLAIN[said]
    if said == "compressed-tensors":
        return "nvfp4" if _fp4(found) else "compressed-tensors"
    if said in ("auto-round", "intel/auto-round"):
        return "awq" if "awq" in str(found.get("packing_format", "")) else "gptq"
    if said == "modelopt":
        algo = str(found.get("quant_algo") or "")
        if "FP4" in algo or algo == "MIXED_PRECISION":
            return "nvfp4"
        if algo.startswith("FP8"):
            return "fp8"
        said = f"modelopt with quant_algo {algo or 'not given'}"
    if not said:
        raise UnknownFact("config.json: quantization_config has no quant_method: no engine of gpufleet reads that")
    raise UnknownFact(f"config.json: quantization_config.quant_method {brief(said)} is none that is known here")


def _fp4(found: Mapping[str, Any]) -> bool:
    """Whether any group of compressed-tensors has weights of 4-bit floating point."""
    return any(
        weights.get("type") == "float" and weights.get("num_bits") == 4
        for _, group in _groups(found)
        if isinstance(weights := group.get("weights"), dict)
    )


def _groups(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    groups = found.get("config_groups")
    return (
        [(name, group) for name, group in groups.items() if isinstance(group, dict)] if isinstance(groups, dict) else []
    )


def converts(found: Mapping[str, Any] | None, module: str) -> bool:
    """Whether by the config the weight of a linear module is quantised."""
    if found is None:
        return False
    for name in IGNORED:
        listed = found.get(name)
        if isinstance(listed, list) and any(_matches(str(pattern), module) for pattern in listed):
            return False
    dynamic = found.get("dynamic")
    if isinstance(dynamic, dict) and any(
        pattern.startswith("-:") and _finds(pattern[2:], module) for pattern in dynamic
    ):
        return False
    extra = found.get("extra_config")
    if isinstance(extra, dict) and any(
        _matches(name, module) and isinstance(given, dict) and _number(given.get("bits", 0)) >= 16
        for name, given in extra.items()
    ):
        return False
    if blocks := next((found[name] for name in ONLY if isinstance(found.get(name), str | list) and found[name]), None):
        wanted = blocks.split(",") if isinstance(blocks, str) else [str(block) for block in blocks]
        return any(module.startswith(block.strip() + ".") for block in wanted)
    layers = found.get("quantized_layers")
    if isinstance(layers, dict):
        return any(_matches(name, module) for name in layers)
    listed = [group.get("targets") for _, group in _groups(found)]
    targets = [str(target) for one in listed if isinstance(one, list) for target in one]
    return not targets or any(target == "Linear" or _matches(target, module) for target in targets)


def _number(given: Any) -> float:
    """Of bits: a number, or a text that is one; 0 for anything else."""
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return 0


def _finds(expression: str, module: str, start: bool = False) -> bool:
    """Whether a regular expression of the file is in the name; one that is none is nowhere."""
    try:
        return (re.match if start else re.search)(expression, module) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _matches(pattern: str, module: str) -> bool:
    """`re:` a regular expression, `*` a wildcard, else a module, one that it is in, or a part of its name."""
    if pattern.startswith("re:"):
        return _finds(pattern[3:], module, start=True)
    if "*" in pattern:
        return fnmatchcase(module, pattern) or fnmatchcase(module, pattern + ".*")
    return f".{pattern}." in f".{module}."
