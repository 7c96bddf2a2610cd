"""#3 / W6: draft width 256 has no SM120 kernel; and 4a's rule for widening."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark.patches.metadata.draft_width import FLASHINFER_0_6_16, Tables, bucket

PATCH = "03-draft-width"


def scenario_width(k=5, use_dspark=True):
    """The real SWA builder's width, and its index rows for one draft block at position 500."""
    from collections import defaultdict
    from types import SimpleNamespace

    import torch
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadataBuilder

    from overlay.deepseek import specs

    spec = next(s for name, s in specs((0,)).items() if name.endswith("swa"))
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=65_536,
            hf_config=SimpleNamespace(
                sliding_window=128, compress_ratios=[0, 4, 128], num_attention_heads=64
            ),
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        speculative_config=SimpleNamespace(
            num_speculative_tokens=k, parallel_drafting=use_dspark, use_dspark=lambda: use_dspark
        ),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, tensor_parallel_size=2),
    )
    builder = DeepseekSparseSWAMetadataBuilder(spec, [], config, torch.device("cpu"))
    seen = {"width": builder.noncausal_index_width}
    if not use_dspark:
        return seen
    positions = torch.arange(500, 500 + k)
    starts = torch.tensor([0, k], dtype=torch.int32)
    common = SimpleNamespace(
        seq_lens=torch.tensor([500 + k], dtype=torch.int32),
        seq_lens_cpu_upper_bound=torch.tensor([500 + k], dtype=torch.int32),
        query_start_loc=starts, query_start_loc_cpu=starts, max_query_len=k, max_seq_len=500 + k,
        num_reqs=1, num_actual_tokens=k, causal=False, slot_mapping=positions,
        block_table_tensor=torch.arange(7, 27, dtype=torch.int32)[None], positions=positions,
        token_to_req_indices=lambda _: torch.zeros(k, dtype=torch.int32),
    )  # fmt: skip
    builder.build_tile_scheduler = lambda _: defaultdict(
        lambda: None
    )  # FlashMLA's plan needs its extension
    builder.build(common_prefix_len=0, common_attn_metadata=common)
    rows = builder.decode_swa_indices_noncausal[:k, 0]
    lengths = builder.decode_swa_lens[:k].tolist()
    seen["lengths"] = lengths
    seen["rows"] = [row[: lengths[0]].tolist() for row in rows]
    seen["stride"] = rows.stride(0)
    return seen


@pytest.mark.vllm
def test_draft_width__reproduces_on_pristine(pristine):
    width = pristine.run(scenario_width)["width"]
    assert width == 256
    assert not any(
        FLASHINFER_0_6_16.takes(tokens, 32, width, dual=False) for tokens in range(1, 200)
    )


@pytest.mark.vllm
def test_draft_width__fixed(pristine, overlaid):
    seen, stock = overlaid.run(scenario_width), pristine.run(scenario_width)
    assert (seen["width"], seen["stride"]) == (512, 512)
    assert seen["lengths"] == stock["lengths"] == [133] * 5
    assert seen["rows"] == stock["rows"], "the same slots, in longer rows"
    assert all(FLASHINFER_0_6_16.takes(n, 32, 512, dual=False) for n in range(1, 200))


@pytest.mark.vllm
def test_draft_width__without_dspark_nothing_changes(overlaid):
    assert overlaid.run(scenario_width, 1, False)["width"] == 0


@pytest.mark.vllm
def test_draft_width__upstream_unchanged():
    unchanged(PATCH)


@pytest.mark.parametrize("heads", [16, 32, 64, 128])
@pytest.mark.parametrize("needed", [129, 133, 135, 200, 256, 400, 512])
def test_widening__single_segment_calls_fit_at_any_number_of_tokens(heads, needed):
    stock = -(-needed // 128) * 128
    width = bucket(needed, stock, FLASHINFER_0_6_16, heads)
    assert width >= needed
    assert all(FLASHINFER_0_6_16.takes(n, heads, width, dual=False) for n in range(1, 300))


def test_widening__only_decode_sized_calls_would_abort_from_13_requests_up():
    """The post's own rule: 256 stays 256 above 64 tokens, which no prefill kernel has."""
    k = 5
    padded = {n: 512 if n * k <= 64 else 256 for n in range(1, 17)}
    fails = [n for n, w in padded.items() if not FLASHINFER_0_6_16.takes(n * k, 32, w, dual=False)]
    assert fails == [13, 14, 15, 16]


def test_widening__dual_segment_calls_would_abort():
    assert all(FLASHINFER_0_6_16.takes(n, 32, 128, dual=True) for n in range(1, 300))
    assert not FLASHINFER_0_6_16.takes(65, 32, 512, dual=True)


def test_widening__is_a_no_op_once_the_tables_have_the_width():
    newer = Tables(
        FLASHINFER_0_6_16.decode | {(32, 256)},
        FLASHINFER_0_6_16.prefill_single | {256},
        FLASHINFER_0_6_16.prefill_dual,
        FLASHINFER_0_6_16.prefill_heads,
    )
    assert bucket(133, 256, newer, 32) == 256
    assert bucket(133, 256, newer, 64) == 512


def test_widening__refuses_what_nothing_fits():
    with pytest.raises(ValueError, match="no SM120 sparse-MLA kernel takes 3000"):
        bucket(3000, 3072, FLASHINFER_0_6_16, 32)
