"""What an engine counts (Prometheus' text form), of vLLM and of LMDeploy, as a few numbers for people."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

# Names without the engine's prefix: vllm/v1/metrics/loggers.py and spec_decode/metrics.py of vLLM 0.24.0 and 0.27.1,
# lmdeploy/metrics/loggers.py of LMDeploy 0.18.0, which says its cache's use by another name.
PREFIXES = ("vllm:", "lmdeploy:")
COUNTED = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "generation_tokens_total": "generated_tokens",
    "prompt_tokens_total": "prompt_tokens",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "draft_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
USE = ("kv_cache_usage_perc", "gpu_cache_usage_perc")  # of 1


def read(text: str) -> Dict[str, float]:
    """The numbers by our names, summed over engines; `kv_cache` is that of the fullest, from 0 to 1."""
    found: Dict[str, float] = {}
    for name, value in samples(text):
        prefix = next((known for known in PREFIXES if name.startswith(known)), None)
        if prefix is None:
            continue
        ours = COUNTED.get(name[len(prefix) :])
        if ours:
            found[ours] = found.get(ours, 0.0) + value
        elif name[len(prefix) :] in USE:
            found["kv_cache"] = max(found.get("kv_cache", 0.0), value)
    return found


def samples(text: str) -> Iterator[Tuple[str, float]]:
    """(name without its labels, value) of each line that is no comment and has a finite value."""
    for line in text.splitlines():
        value = number(line.rsplit(" ", 1)[-1])
        if value is not None and not line.startswith("#"):
            yield line.split("{", 1)[0].split(" ", 1)[0], value


def number(word: str) -> Optional[float]:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def speed(before: Dict[str, float], after: Dict[str, float], seconds: float) -> Dict[str, float]:
    """Tokens a second between two looks; nothing of a counter that began anew in between."""
    rates = {}
    for key, ours in (("generated_tokens", "tokens_per_second"), ("prompt_tokens", "prompt_tokens_per_second")):
        grown = after.get(key, 0.0) - before.get(key, 0.0)
        if key in before and key in after and seconds > 0 and grown >= 0:
            rates[ours] = round(grown / seconds, 1)
    return rates
