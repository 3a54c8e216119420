"""What engines logged, with the boxes and flags, for the tests of the memory estimate and of its page."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures import AUTOROUND_27B, FP8_27B, FP8_35B
from tests.unit.memory_recipes import PIECEWISE, RTX_2080_TI, RTX_3090, RUNNING, Case, mtp

Logged = tuple[Case, int]  # and the tokens that were logged

# club-3090 #642, #294; #446; talos-argocd-proxmox #1995
PAIR_OF_3090: dict[str, Any] = {"max_model_len": 262_144, "max_num_batched_tokens": 8192}
AUTOROUND: Case = (
    AUTOROUND_27B,
    RTX_3090,
    2,
    PAIR_OF_3090 | {"kv_cache_dtype": "fp8_e5m2", "max_num_seqs": 2} | mtp(3),
)
FOUR_3090: Case = (
    AUTOROUND_27B,
    RTX_3090,
    4,
    PAIR_OF_3090 | {"kv_cache_dtype": "int8_per_token_head", "max_num_seqs": 4} | mtp(3),
)
FP8_ON_3090: Case = (
    FP8_27B,
    RTX_3090,
    2,
    PAIR_OF_3090 | {"kv_cache_dtype": "fp8_e4m3", "max_num_seqs": 2, "max_model_len": 131_072},
)

# weicj's list at 0.96; its batch and its kind of graphs are not in it: 4096 and PIECEWISE are supposed
SUPPOSED: dict[str, Any] = {"gpu_memory_utilization": 0.96, "max_num_seqs": 1, "max_num_batched_tokens": 4096}
ONLY_TEXT = SUPPOSED | {"language_model_only": True}
FP8_KV = {"kv_cache_dtype": "fp8"}
SIX: list[Logged] = [
    ((FP8_27B, RTX_2080_TI, 2, ONLY_TEXT | {"max_model_len": 148_480} | mtp(4)), 149_964),
    ((FP8_27B, RTX_2080_TI, 2, ONLY_TEXT | {"max_model_len": 176_128} | PIECEWISE), 179_940),
    ((FP8_27B, RTX_2080_TI, 2, SUPPOSED | {"max_model_len": 121_856} | PIECEWISE), 122_608),
    ((FP8_27B, RTX_2080_TI, 2, ONLY_TEXT | {"max_model_len": 262_144} | FP8_KV | mtp(4)), 295_455),
    ((FP8_27B, RTX_2080_TI, 2, SUPPOSED | {"max_model_len": 186_368} | FP8_KV | mtp(4)), 190_540),
    ((FP8_27B, RTX_2080_TI, 2, ONLY_TEXT | {"max_model_len": 338_944} | FP8_KV | PIECEWISE), 354_143),
]
MIXTURE: list[Logged] = [
    ((FP8_35B, RTX_2080_TI, 2, ONLY_TEXT | {"max_model_len": 262_144} | PIECEWISE), 284_760),
    ((FP8_35B, RTX_2080_TI, 2, SUPPOSED | {"max_model_len": 221_184} | FP8_KV | PIECEWISE), 223_158),
]

# By the first cell of the row in docs/reference/memory.md
ROWS: dict[str, list[Logged]] = {
    "box B, FP8 KV": [(RUNNING["B"], 207_692)],
    "box B, FP16 KV": [(RUNNING["B with FP16 KV"], 115_714)],
    "2 × 3090, AutoRound INT4, MTP 3, FP8 KV": [(AUTOROUND, 623_873), (AUTOROUND, 622_408)],
    "4 × 3090, the same, INT8 KV": [(FOUR_3090, 1_746_661)],
    "2 × 3090, FP8, no MTP, FP8 KV": [(FP8_ON_3090, 302_921)],
    "2 × 2080 Ti, 35B FP8, two profiles": MIXTURE,
}
