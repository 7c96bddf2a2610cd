"""#11: builders disagree on the decode boundary."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark.patches.metadata import decode_boundary

pytestmark = pytest.mark.vllm
PATCH = "11-decode-boundary"
AGREE, DISAGREE = [6, 6, 108], [6, 8, 106]  # query lengths; the order is the runner's


def scenario_build(query_lens, strict, prefilling=True):
    """The real indexer builder over one mixed batch; what was counted."""
    import os
    from types import SimpleNamespace

    import torch
    from vllm.v1.attention.backends.mla import indexer

    from overlay.deepseek import specs
    from twinspark import report

    os.environ["TWINSPARK_STRICT"] = "1" if strict else "0"
    indexer.num_compute_units = lambda _: 48
    indexer.has_deep_gemm = lambda: False
    spec = next(s for name, s in specs((4,)).items() if name.endswith("indexer"))
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=65_536, hf_config=SimpleNamespace(index_topk=512),
            hf_text_config=SimpleNamespace(index_topk=512),
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=256, max_num_seqs=8),
        speculative_config=SimpleNamespace(num_speculative_tokens=5, parallel_drafting=True),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1,
            cp_kv_cache_interleave_size=1, dcp_kv_cache_interleave_size=1,
        ),
        attention_config=SimpleNamespace(use_fp4_indexer_cache=False),
    )  # fmt: skip
    builder = indexer.DeepseekV32IndexerMetadataBuilder(
        spec, [], config, torch.device("cpu"), block_table_width=20
    )
    lens = torch.tensor(query_lens, dtype=torch.int32)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), lens.cumsum(0).int()])
    seq_lens = lens + torch.tensor([500, 700, 0], dtype=torch.int32)
    total = int(lens.sum())
    common = SimpleNamespace(
        num_reqs=len(query_lens), num_actual_tokens=total, max_query_len=max(query_lens),
        max_seq_len=int(seq_lens.max()), query_start_loc=starts, query_start_loc_cpu=starts,
        seq_lens=seq_lens, seq_lens_cpu_upper_bound=seq_lens, dcp_local_seq_lens=None,
        slot_mapping=torch.arange(total), is_prefilling=torch.tensor([False, False, prefilling]),
        block_table_tensor=torch.arange(60, dtype=torch.int32).view(3, 20),
    )  # fmt: skip
    seen = {
        "indexer": builder.build(common_prefix_len=0, common_attn_metadata=common).num_decode_tokens
    }
    from vllm.v1.attention.backends.utils import split_decodes_and_prefills

    seen["others"] = split_decodes_and_prefills(common, decode_threshold=11)[2]
    seen["counted"] = report.current().as_dict()["counters"].get("decode_boundary_disagreements")
    return seen


def test_boundary__reproduces_on_pristine(pristine):
    seen = pristine.run(scenario_build, DISAGREE, False)
    assert (seen["indexer"], seen["others"], seen["counted"]) == (6, 14, None)


def test_boundary__fixed(overlaid):
    """Counted, and otherwise left as it is: no corruption by it is known."""
    assert overlaid.run(scenario_build, DISAGREE, False) == {
        "indexer": 6, "others": 14, "counted": 1
    }  # fmt: skip


def test_boundary__agreeing_batch_is_not_counted(overlaid):
    seen = overlaid.run(scenario_build, AGREE, True)
    assert (seen["indexer"], seen["others"], seen["counted"]) == (12, 12, None)


def test_boundary__of_a_dummy_batch_is_not_counted(overlaid):
    """As PIECEWISE graphs are captured: 7 to 11 tokens a request, and none of them prefills."""
    seen = overlaid.run(scenario_build, [8, 8, 8], True, False)
    assert (seen["indexer"], seen["others"], seen["counted"]) == (0, 24, None)


def test_boundary__strict_mode_raises(overlaid):
    error = overlaid.outcome(scenario_build, DISAGREE, True)["error"]
    assert error.startswith("BoundaryError: decode boundary: indexer 6 tokens (threshold 6)")


@pytest.mark.parametrize(("drafting", "k", "expected"), [(True, 5, 11), (False, 5, 6)])
def test_threshold__of_the_others(drafting, k, expected):
    from types import SimpleNamespace

    config = SimpleNamespace(parallel_drafting=drafting, num_speculative_tokens=k)
    assert decode_boundary.other_threshold(config) == expected
    assert decode_boundary.other_threshold(None) == 1


def test_boundary__upstream_unchanged():
    unchanged(PATCH)
