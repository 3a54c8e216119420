"""The gated delta rule written out, and a stand-in for FlashQLA that computes it as its kernel does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

import torch
from torch import Tensor


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One sequence, token by token: q, k [T, H, K]; v [T, HV, V]; g, beta [T, HV]; state [HV, V, K], as vLLM keeps it.

    Value head i reads query head i // (HV / H). Computed in the inputs' dtype.
    """
    group = v.shape[1] // q.shape[1]
    q, k = q.repeat_interleave(group, dim=1), k.repeat_interleave(group, dim=1)
    out = torch.empty_like(v)
    for t in range(v.shape[0]):
        state = state * g[t].exp()[:, None, None]
        change = (v[t] - torch.einsum("hvk,hk->hv", state, k[t])) * beta[t][:, None]
        state = state + torch.einsum("hv,hk->hvk", change, k[t])
        out[t] = torch.einsum("hvk,hk->hv", state, q[t]) * scale
    return out, state


class FlashQLA:
    """Stands in for flash_qla: refuses what the genuine forward refuses, and counts its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []  # the tokens of each

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        scale: float | None = None,
        initial_state: Tensor | None = None,
    ) -> list[Tensor]:
        batch, tokens, heads, dim = q.shape
        tensors = [q, k, v, g, beta] + ([] if initial_state is None else [initial_state])
        assert all(it.dtype == torch.float32 and it.is_contiguous() for it in tensors)
        assert k.shape == q.shape and v.shape[:2] == (batch, tokens) and v.shape[3] == dim
        assert g.shape == beta.shape == v.shape[:3] and v.shape[2] % heads == 0 and tokens > 0
        assert dim in (16, 32, 64, 128)
        shape = (batch, v.shape[2], dim, dim)
        assert initial_state is None or initial_state.shape == shape
        states = torch.zeros(shape) if initial_state is None else initial_state
        scale = dim**-0.5 if scale is None else scale
        self.calls.append(tokens)
        done = [recurrence(q[b], k[b], v[b], g[b], beta[b], scale, states[b]) for b in range(batch)]
        return [torch.stack(it) for it in zip(*done, strict=True)]


NAMES = ["flash_qla", "flash_qla.ops", "flash_qla.ops.gated_delta_rule", "flash_qla.ops.gated_delta_rule.legacy"]


@contextmanager
def installed() -> Iterator[FlashQLA]:
    """While it is entered, flash_qla can be imported."""
    stand_in = FlashQLA()
    modules = {name: ModuleType(name) for name in NAMES}
    modules[NAMES[-1]].chunk_gated_delta_rule_fwd_legacy = stand_in.forward  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, modules):
        yield stand_in
