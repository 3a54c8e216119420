"""FlashInfer's attention kernels, which it would compile at the first request: those that vLLM 0.27.1 asks for.

Runs in the new runtime (gpufleet's verb `runtime`) and needs no card. A kernel that lies in the package's data/aot
folder is taken from there, without a compiler. vLLM plans prefill and decode with the same kernels (its decode uses
tensor cores, which is prefill to FlashInfer): queries and output in half, the KV cache in half or e4m3, indexes of 32
bits, no position encoding, no window, no cap (vllm/v1/attention/backends/flashinfer.py; FlashInfer's prefill.py and
decode.py). The backend is fa2 on every card but 9.0.

All architectures of the box go into one library, whose name does not tell them apart.
"""

import os
import shutil
import time
from pathlib import Path

import torch
from flashinfer.jit.attention import gen_batch_prefill_module

HEAD_DIMS = (256,)  # of Qwen3.5, 3.6 and 3.8; others are compiled at the first request
KV = (torch.float8_e4m3fn, torch.float16)

into = Path(os.environ["GPUFLEET_INTO"])
for head_dim in HEAD_DIMS:
    for kv in KV:
        spec = gen_batch_prefill_module(
            "fa2",
            torch.float16,  # queries
            kv,
            torch.float16,  # output
            torch.int32,
            head_dim,
            head_dim,
            0,  # no position encoding
            False,  # no sliding window
            False,  # no cap of the logits
            False,  # no reduction in half precision
        )
        place = into / spec.name / f"{spec.name}.so"
        if place.exists():
            continue
        began = time.monotonic()
        spec.build()
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_suffix(".part")
        shutil.copyfile(spec.jit_library_path, aside)
        aside.rename(place)
        shutil.rmtree(spec.build_dir)
        seconds = time.monotonic() - began
        print(f"gpufleet: FlashInfer: head {head_dim}, KV {str(kv).split('.')[1]}: {seconds:.0f} s", flush=True)
