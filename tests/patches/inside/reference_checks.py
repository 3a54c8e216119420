"""The rule that the other checks compare with is vLLM's own: its kernel runs here by Triton's interpreter."""

import torch
import triton
import triton.language as tl
import vllm.triton_utils
from gated_delta import recurrence
from triton.language.extra import libdevice

# Without a device vLLM does without Triton; its kernels are to have it here.
vars(vllm.triton_utils).update(triton=triton, tl=tl, tldevice=libdevice)

try:
    from vllm.third_party.flash_linear_attention.ops import fused_recurrent
except ModuleNotFoundError:  # where vLLM 0.24.0 has it
    from vllm.model_executor.layers.fla.ops import fused_recurrent

# The interpreter knows functions of `tl` only by that name.
vars(fused_recurrent).update(exp=lambda x: tl.exp(x), log=lambda x: tl.log(x))


def check_the_recurrence_is_that_of_vllm() -> None:
    """Also in the layout of the states, [heads, V, K]."""
    heads, v_heads, dim, tokens = 2, 4, 16, 5
    made = torch.Generator().manual_seed(1)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(1, *shape, generator=made)

    q, k, v = some(tokens, heads, dim) / 4, some(tokens, heads, dim) / 4, some(tokens, v_heads, dim)
    g, beta = -some(tokens, v_heads).abs(), some(tokens, v_heads).sigmoid()
    state = some(v_heads, dim, dim)
    out, by_token = fused_recurrent.fused_recurrent_gated_delta_rule_fwd(
        q, k, v, g, beta, dim**-0.5, state, inplace_final_state=False
    )
    wanted, final = recurrence(q[0], k[0], v[0], g[0], beta[0], dim**-0.5, state[0])
    torch.testing.assert_close(out[0], wanted)
    torch.testing.assert_close(by_token[-1], final)
