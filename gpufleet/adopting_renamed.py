"""Flags of older versions of vLLM that newer ones do not know: what stands in their place, or why nothing has to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.engines import Engine

# The flag and the key in its mapping that took the place, and where that was said.
RENAMED = {
    "guided-decoding-backend": ("structured-outputs-config", "backend", "vllm #29326"),
}
# What needs nothing in its place, and why.
GONE = {
    "disable-log-requests": "requests are not logged unless enable-log-requests asks for it (vllm #21739)",
    "enable-reasoning": "reasoning-parser alone says so (vllm #17452)",
    "use-v2-block-manager": "of vLLM's first engine, which is gone",
    "num-scheduler-steps": "of vLLM's first engine, which is gone",
    "swap-space": "of vLLM's first engine, which is gone",
    "max-seq-len-to-capture": "of vLLM's first engine; the sizes of CUDA graphs go by compilation-config",
    "max-num-partial-prefills": "not in vLLM after 0.24.0",
    "max-long-partial-prefills": "not in vLLM after 0.24.0",
    "download-dir": "the engine fetches nothing: the model is linked where it lies",
    "revision": "the model is the very files that are served now",
    "code-revision": "the model is the very files that are served now",
    "tokenizer-revision": "the model is the very files that are served now",
    "config": "what was in that file is in the entry; the instance's own is its serve.yaml",
}


def renewed(args: Mapping[str, Any], table: Engine | None) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """(flags for this engine, {old name: (new name, or empty; why)}).

    What the engine does not know and no table here has is left out, and named with an empty reason.
    """
    found: dict[str, Any] = {}
    told: dict[str, tuple[str, str]] = {}
    for flag, value in args.items():
        knows = table is None or table.knows_flag(flag)
        if flag in ("download-dir", "revision", "code-revision", "tokenizer-revision", "config"):
            told[flag] = ("", GONE[flag])
        elif knows:
            found[flag] = value
        elif flag in RENAMED:
            name, key, source = RENAMED[flag]
            found[name] = {**found.get(name, {}), key: value}
            told[flag] = (f"{name}.{key}", f"so it is called now ({source})")
        else:
            told[flag] = ("", GONE.get(flag, ""))
    return found, told
