"""Counters, under vLLM's names and in the text that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter

GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
SPECULATIVE = (
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
)


class Metrics:
    """+ speculative: whether those of speculative decoding are there"""

    def __init__(self, model: str, *, speculative: bool) -> None:
        self.model, self.lock = model, threading.Lock()
        self.names = (*GAUGES, *COUNTERS, *(SPECULATIVE if speculative else ()))
        self.values: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """`num_requests_running=1` and the like; negative amounts are taken away."""
        with self.lock:
            for name, amount in amounts.items():
                self.values[f"vllm:{name}"] += amount

    def text(self) -> str:
        with self.lock:
            lines = []
            for name in self.names:
                kind = "gauge" if name in GAUGES else "counter"
                lines.append(f"# TYPE {name.removesuffix('_total')} {kind}")
                lines.append(f'{name}{{engine="0",model_name="{self.model}"}} {float(self.values[name])}')
        return "".join(f"{line}\n" for line in lines)
