"""Arithmetic of vLLM's KV cache: blocks, pages and what one request takes of them.

As in `v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`, `platforms/interface.py` and
`model_executor/layers/mamba/mamba_utils.py` of vLLM 0.24.0 and 0.27.1, which agree in all that is used here. All layers
share one pool of blocks of one size; layers are put into groups of equally many layers, and each group takes blocks of
its own for a request.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet.architecture import Architecture, Linear

SCALE_BYTES = 4  # a float32 for each key and each value of a token and head (the `per_token_head` kinds)
SMALLEST_BLOCK = 16  # tokens; DEFAULT_BLOCK_SIZE, and the least that the attention kernels take

# Bits of a number of keys and of values, and bytes beside each: norms, scales, zeros
# (`quantization/turboquant/config.py`, `kv_cache_interface.py`).
KINDS: dict[str, tuple[float, float, int]] = {
    "fp8": (8, 8, 0),
    "fp8_e4m3": (8, 8, 0),
    "fp8_e5m2": (8, 8, 0),
    "fp8_per_token_head": (8, 8, 2 * SCALE_BYTES),
    "int8_per_token_head": (8, 8, 2 * SCALE_BYTES),
    "int4_per_token_head": (4, 4, 2 * SCALE_BYTES),
    "nvfp4": (4.5, 4.5, 0),  # a byte of scale for 16 numbers
    "turboquant_k8v4": (8, 4, 4),
    "turboquant_4bit_nc": (4, 4, 6),
    "turboquant_k3v4_nc": (3, 4, 6),
    "turboquant_3bit_nc": (3, 3, 6),
}


@dataclass(frozen=True)
class Layout:
    """How the pool of one GPU is laid out.

    + block: tokens of a block of attention
    + block_bytes: bytes of a block, over all layers of a group
    + full, sliding, linear: groups by kind of layer
    + window: tokens that a sliding group keeps; 0 without such layers
    + states: blocks that a group of linear layers takes for a request, however long it is
    """

    block: int
    block_bytes: int
    full: int
    sliding: int
    linear: int
    window: int
    states: int

    def blocks_of(self, length: int) -> int:
        """Blocks of one request of `length` tokens."""
        blocks = self.full * _ceil(length, self.block) + self.linear * self.states
        if self.sliding:
            blocks += self.sliding * (_ceil(min(self.window, length), self.block) + 1)
        return blocks

    def longest(self, blocks: int, limit: int) -> int:
        """The longest request, at most `limit` tokens, for which `blocks` suffice; 0 if there is none."""
        if not self.sliding:
            left = blocks - self.linear * self.states
            return max(0, min(limit, left // self.full * self.block if self.full else limit * (left >= 0)))
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_of(middle) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def layout(
    architecture: Architecture,
    *,
    gpus: int,
    kind: str,
    number_bytes: int = 2,
    conv_bytes: int = 2,
    state_bytes: int | None = None,
    block_size: int | None = None,
    batch: int,
    draft_layers: int = 0,
    draft_tokens: int = 0,
    prefix_caching: bool = True,
) -> Layout:
    """The pool of each of `gpus` cards.

    + kind: `kv-cache-dtype`; what is not in KINDS is counted as `number_bytes`
    + conv_bytes, state_bytes: of a number of the convolution's and of the recurrent state; None: as the model says
    + block_size: as asked for; a hybrid model takes it as its granularity
    + batch: tokens that may be under way at once; a sliding window keeps them beside its own
    + draft_layers: attention layers of the MTP head, which share the pool
    """
    token = token_bytes(architecture, gpus, kind, number_bytes)
    block = block_size or SMALLEST_BLOCK
    if architecture.linear:
        # A page of attention must hold a state; a state's page is padded to it.
        step = max(block, SMALLEST_BLOCK)
        state = _state(architecture.linear, gpus, draft_tokens, conv_bytes, state_bytes)
        block = step * _ceil(state, step * token)
    kinds = architecture.layers
    windowed = kinds.sliding_attention if architecture.sliding_window else 0
    full = kinds.full_attention + kinds.sliding_attention - windowed
    if full:
        full += draft_layers
    elif windowed:
        windowed += draft_layers
    # A kind may lack: `linear_attention` without `linear` is no model that vLLM could serve, and takes no pool.
    linear = kinds.linear_attention if architecture.linear else 0
    group = _group(full, windowed, linear)
    return Layout(
        block=block,
        block_bytes=group * block * token,
        full=_ceil(full, group),
        sliding=_ceil(windowed, group),
        linear=_ceil(linear, group),
        window=(architecture.sliding_window or 1) - 1 + batch if windowed else 0,
        # With prefix caching (mode `align`) the state before is kept while it is copied.
        states=(2 if prefix_caching else 1) + draft_tokens,
    )


def token_bytes(architecture: Architecture, gpus: int, kind: str, number_bytes: int = 2) -> int:
    """Keys and values of one token in one layer, on one GPU; heads fewer than GPUs are on each of them."""
    heads = max(1, architecture.kv_heads // gpus)
    keys, values, beside = KINDS.get(kind, (8 * number_bytes, 8 * number_bytes, 0))
    size = -int(-architecture.head_dim * keys // 8) - int(-architecture.head_dim * values // 8) + beside
    return heads * (size + size % 2)


def _state(linear: Linear, gpus: int, draft_tokens: int, conv_bytes: int, state_bytes: int | None) -> int:
    """Bytes of the convolution's and the recurrent state of one layer on one GPU (`gated_delta_net_state_shape`)."""
    channels = 2 * linear.key_heads * linear.key_dim + linear.value_heads * linear.value_dim
    conv = _ceil(channels, gpus) * (linear.conv_kernel - 1 + draft_tokens) * conv_bytes
    heads = _ceil(linear.value_heads, gpus)
    return conv + heads * linear.value_dim * linear.key_dim * (state_bytes or linear.state_bytes)


def _group(*layers: int) -> int:
    """Layers of a group: as many as the rarest kind has, or the most frequent where the two are near each other."""
    present = [number for number in layers if number] or [1]
    fewest, most = min(present), max(present)
    return most if most < 1.5 * fewest else fewest


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
