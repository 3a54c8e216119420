"""0004: prefill of gated delta net layers by FlashQLA."""

import builtins
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from engine import card, log_of, refusal
from gated_delta import FlashQLA, installed, recurrence
from torch import Tensor
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.mamba.gdn import qwen_gdn_linear_attn as gdn
from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder
from vllm.v1.attention.backends.utils import CommonAttentionMetadata

H, HV, D = 2, 4, 16


def configured(backend: str | None) -> Any:
    return SimpleNamespace(
        additional_config={} if backend is None else {"gdn_prefill_backend": backend},
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(linear_key_head_dim=128)),
    )


def layer(backend: str | None, capability: tuple[int, int] = (7, 5)) -> tuple[gdn.ChunkGatedDeltaRule, list[str]]:
    """The operator as a model makes it at start-up, on such a card, and what it logs."""
    with (
        set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))),
        mock.patch.object(gdn, "get_current_vllm_config", lambda: configured(backend)),
        mock.patch.object(gdn, "current_platform", card(*capability)),
        log_of(gdn) as lines,
    ):
        return gdn.ChunkGatedDeltaRule(), lines


def check_resolution() -> None:
    def resolved(backend: str | None, capability: tuple[int, int]) -> tuple[str, str]:
        with mock.patch.object(gdn, "current_platform", card(*capability)):
            return gdn._resolve_gdn_prefill_backend(configured(backend))

    for capability in [(7, 0), (7, 5), (8, 6), (9, 0)]:
        assert resolved("FlashQLA_legacy ", capability) == ("flashqla_legacy", "flashqla_legacy")
    assert resolved(None, (7, 5)) == ("auto", "triton")
    assert resolved("flashinfer", (7, 5)) == ("flashinfer", "triton")
    assert resolved(None, (9, 0)) == ("auto", "flashinfer")


def check_the_log_names_it() -> None:
    with installed():
        made, lines = layer("flashqla_legacy")
    assert lines == ["Using FlashQLA (flashqla_legacy) GDN prefill kernel (requested=flashqla_legacy, head_k_dim=128)."]
    assert made.gdn_prefill_backend == "flashqla_legacy"
    for backend in (None, "triton"):
        made, (line,) = layer(backend)
        assert line.startswith("Using Triton/FLA GDN prefill kernel"), line
        assert made._forward_method == made.forward_native


def check_missing_flash_qla_is_said_at_start_up() -> None:
    said = refusal(layer, "flashqla_legacy")
    assert said.startswith(
        "ImportError: gdn_prefill_backend is flashqla_legacy, but flash_qla cannot be imported "
        "(ModuleNotFoundError: No module named 'flash_qla')."
    ), said


def check_a_flash_qla_that_refuses_the_card_is_said_at_start_up() -> None:
    genuine = builtins.__import__

    def refusing(name: str, *rest: Any) -> Any:
        if name.startswith("flash_qla"):
            raise ValueError("FlashQLA now support sm90 only.")
        return genuine(name, *rest)

    with mock.patch.object(builtins, "__import__", refusing):
        said = refusal(layer, "flashqla_legacy")
    assert "cannot be imported (ValueError: FlashQLA now support sm90 only.)" in said, said


def check_no_fallback_off_cuda() -> None:
    said = refusal(gdn._resolve_gdn_prefill_backend, configured("flashqla_legacy"))
    assert said.startswith("ValueError: gdn_prefill_backend is flashqla_legacy, which needs a CUDA device"), said
    assert gdn._resolve_gdn_prefill_backend(configured(None)) == ("auto", "triton")
    assert gdn._resolve_gdn_prefill_backend(configured("cutedsl")) == ("cutedsl", "triton")


def inputs(tokens: int, dtype: torch.dtype, batch: int = 1) -> dict[str, Tensor]:
    """Random inputs as a layer has them: views into one tensor, so not contiguous; q and k near unit length."""
    made = torch.Generator().manual_seed(tokens)
    mixed = torch.randn(batch, tokens, (2 * H + HV) * D, generator=made)
    q, k, v = mixed.to(dtype).split([H * D, H * D, HV * D], dim=-1)
    return {
        "q": q.unflatten(-1, (H, D)) / 4,
        "k": k.unflatten(-1, (H, D)) / 4,
        "v": v.unflatten(-1, (HV, D)),
        "g": -torch.rand(batch, tokens, HV, generator=made),
        "beta": torch.rand(batch, tokens, HV, generator=made).to(dtype),
    }


def states(count: int) -> Tensor:
    """[count, HV, V, K], not symmetric: a layout taken the wrong way round shows."""
    return torch.randn(count, HV, D, D, generator=torch.Generator().manual_seed(99))


def expected(given: dict[str, Tensor], offsets: list[int], initial: Tensor, l2norm: bool) -> tuple[Tensor, Tensor]:
    """By sequence in float64."""
    wide = {name: it[0].double() for name, it in given.items()}
    if l2norm:
        for name in ("q", "k"):
            wide[name] = wide[name] / (wide[name].pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()
    out, final = torch.zeros_like(wide["v"]), []
    for start, end, state in zip(offsets, offsets[1:], initial.double(), strict=False):
        part = {name: it[start:end] for name, it in wide.items()}
        out[start:end], state = recurrence(**part, scale=D**-0.5, state=state)
        final.append(state)
    return out[None], torch.stack(final)


def close(got: Tensor | None, wanted: Tensor, dtype: torch.dtype) -> None:
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    assert got is not None and got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)


def check_packed_sequences() -> None:
    """Ragged, with empty sequences at the start, inside and at the end; by the layer's own call."""
    offsets = [0, 0, 3, 4, 4, 11, 13, 13]
    for dtype in (torch.float16, torch.bfloat16):
        for l2norm in (False, True):
            given, initial = inputs(13, dtype), states(7)
            before = {name: it.clone() for name, it in given.items()}
            with installed() as flash_qla:
                made, _ = layer("flashqla_legacy")
                out, final = made(
                    **given,
                    initial_state=initial,
                    output_final_state=True,
                    cu_seqlens=torch.tensor(offsets, dtype=torch.int32),
                    use_qk_l2norm_in_kernel=l2norm,
                )
            wanted_out, wanted_final = expected(given, offsets, initial, l2norm)
            close(out, wanted_out, dtype)
            close(final, wanted_final, torch.float32)
            assert flash_qla.calls == [3, 1, 7, 2], "empty sequences do not reach it"
            for empty in (0, 3, 6):
                assert torch.equal(final[empty], initial[empty]), "an empty sequence keeps its state"
            assert torch.equal(initial, states(7)) and all(torch.equal(given[it], before[it]) for it in given)


def packed(offsets: list[int], initial: Tensor | None, **more: Any) -> tuple[Tensor, Tensor | None]:
    cu_seqlens = torch.tensor(offsets, dtype=torch.int32)
    given = {**inputs(6, torch.float16), "output_final_state": True, **more}
    return gdn.flashqla_chunk_gated_delta_rule(
        FlashQLA().forward, initial_state=initial, cu_seqlens=cu_seqlens, **given
    )


def check_states() -> None:
    given, offsets = inputs(6, torch.float16), [0, 2, 2, 6]
    for initial, as_if in [
        (states(3), states(3)),  # by index
        (states(1), states(1).expand(3, -1, -1, -1)),  # one for all
        (None, torch.zeros(3, HV, D, D)),
        (states(3).bfloat16(), states(3).bfloat16()),  # whatever dtype the cache has
    ]:
        out, final = packed(offsets, initial)
        wanted_out, wanted_final = expected(given, offsets, as_if, l2norm=False)
        close(out, wanted_out, torch.float16)
        close(final, wanted_final, torch.float32)


def check_final_state_only_when_asked() -> None:
    out, final = packed([0, 6], states(1), output_final_state=False)
    assert final is None
    assert torch.equal(out, packed([0, 6], states(1))[0])


def check_refused_offsets_and_states() -> None:
    for offsets in ([0, 5], [1, 6], [0, 4, 2, 6], [0, 7], [0]):
        assert "cu_seqlens do not cover 6 tokens in order" in refusal(packed, offsets, None), offsets
    assert "2 initial states for 3 sequences" in refusal(packed, [0, 2, 4, 6], states(2))
    assert "4 initial states for 3 sequences" in refusal(packed, [0, 2, 4, 6], states(4))
    two = {name: it.expand(2, *it.shape[1:]) for name, it in inputs(6, torch.float16).items()}
    assert "cu_seqlens with a batch of 2 instead of 1" in refusal(packed, [0, 6], None, **two)


def check_without_offsets() -> None:
    """A batch of equally long sequences."""
    given = inputs(5, torch.bfloat16, batch=3)
    for initial, as_if in [(states(3), states(3)), (states(1), states(1).expand(3, -1, -1, -1))]:
        out, final = gdn.flashqla_chunk_gated_delta_rule(
            FlashQLA().forward, **given, initial_state=initial, output_final_state=True
        )
        for b in range(3):
            one = {name: it[b : b + 1] for name, it in given.items()}
            wanted_out, wanted_final = expected(one, [0, 5], as_if[b : b + 1], l2norm=False)
            close(out[b : b + 1], wanted_out, torch.bfloat16)
            close(final[b : b + 1] if final is not None else None, wanted_final, torch.float32)


def check_the_given_buffer_is_filled() -> None:
    buffer = torch.full((8, HV, D), 7.0, dtype=torch.float16)
    with installed():
        made, _ = layer("flashqla_legacy")
        out, final = made(
            **inputs(6, torch.float16),
            initial_state=states(1),
            output_final_state=False,
            cu_seqlens=torch.tensor([0, 6]),
            use_qk_l2norm_in_kernel=False,
            core_attn_out=buffer,
        )
    assert final is None and torch.equal(buffer[:6], out[0])
    assert (buffer[6:] == 7).all(), "no more than the output"


def metadata(backend: str, lengths: list[int]) -> tuple[Any, Tensor, Tensor]:
    """What the builder gives the layers of a batch of prompts of these lengths, and the offsets given: CPU, device."""
    builder: Any = GDNAttentionMetadataBuilder.__new__(GDNAttentionMetadataBuilder)
    vars(builder).update(
        gdn_prefill_backend=backend,
        num_spec=0,
        use_spec_decode=False,
        reorder_batch_threshold=1,
        use_full_cuda_graph=False,
        kv_cache_spec=SimpleNamespace(block_size=16, num_speculative_blocks=0),
        vllm_config=SimpleNamespace(cache_config=SimpleNamespace(mamba_cache_mode="none")),
    )
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    on_the_device = offsets.clone()
    common = CommonAttentionMetadata(
        query_start_loc=on_the_device,
        query_start_loc_cpu=offsets,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        _seq_lens_cpu=torch.tensor(lengths, dtype=torch.int32),
        _num_computed_tokens_cpu=torch.zeros(len(lengths), dtype=torch.int32),
        num_reqs=len(lengths),
        num_actual_tokens=sum(lengths),
        max_query_len=max(lengths),
        max_seq_len=max(lengths),
        block_table_tensor=torch.arange(len(lengths), dtype=torch.int32)[:, None],
        slot_mapping=torch.arange(sum(lengths)),
    )
    return builder.build(0, common), offsets, on_the_device


def check_the_offsets_are_read_on_the_cpu() -> None:
    built, on_the_cpu, on_the_device = metadata("flashqla_legacy", [70, 3])
    assert built.prefill_query_start_loc.data_ptr() == on_the_cpu.data_ptr() and built.chunk_indices is None
    assert built.non_spec_query_start_loc.data_ptr() == on_the_device.data_ptr(), "only what FlashQLA reads"
    built, _, on_the_device = metadata("triton", [70, 3])
    assert built.prefill_query_start_loc.data_ptr() == on_the_device.data_ptr()
    assert built.chunk_indices.tolist() == [[0, 0], [0, 1], [1, 0]]


def check_a_failing_warm_up_ends_the_start() -> None:
    """At the warm-up FlashQLA compiles its extension: where that fails, the first request would fail."""

    def warm_up(backend: str) -> None:
        its: Any = SimpleNamespace(
            _prefill_kernels_warmed_up=False, num_k_heads=H, num_v_heads=HV, tp_size=1, head_k_dim=D, head_v_dim=D,
            A_log=None, dt_bias=None, prefix="layers.0", gdn_prefill_backend=backend,
            get_state_dtype=lambda: (torch.float16, torch.float32),
            chunk_gated_delta_rule=mock.Mock(side_effect=RuntimeError("Ninja is required")),
        )  # fmt: skip
        prepared = tuple(it[0] for it in inputs(64, torch.float16).values())
        with (
            mock.patch.object(gdn, "fused_post_conv_prep", lambda **_: prepared),
            mock.patch.object(torch.accelerator, "empty_cache"),
            log_of(gdn) as lines,
        ):
            gdn.QwenGatedDeltaNetAttention._warmup_prefill_kernels(its, torch.zeros(1, (2 * H + HV) * D), 0)
        assert "warmup (T=64) failed" in lines[0]

    assert refusal(warm_up, "flashqla_legacy") == "RuntimeError: Ninja is required"
    warm_up("triton")
