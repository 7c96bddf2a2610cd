"""W3, W4, W5 / #10: what stock has no SM12x kernel for is served by the overlay's, by name.

The kernels themselves are tested in tests/kernels; here: that the engine's consumers reach them.
"""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark import selection
from twinspark.patching import Context

OPERATIONS = {
    "hc_prenorm_gemm": "w3-hc-prenorm",
    "fp8_o_proj": "w4-o-proj",
    "mqa_logits": "w5-indexer-logits",
    "paged_mqa_logits": "w5-indexer-logits",
}


def told():
    from twinspark import report

    return [kernel["op"] for kernel in report.current().as_dict()["kernels"]]


def scenario_hc_prenorm_gemm():
    """As mhc/tilelang.py:372 calls it: imported inside the function, 3-D residual."""
    import torch
    from vllm.utils.deep_gemm import tf32_hc_prenorm_gemm

    torch.manual_seed(0)
    x = torch.randn(5, 4, 64).bfloat16()
    fn = torch.randn(24, 256)
    out, square = torch.full((2, 5, 24), float("nan")), torch.full((2, 5), float("nan"))
    tf32_hc_prenorm_gemm(x, fn, out, square, 2)
    flat = x.flatten(1).double()
    error = (out.sum(0) - flat @ fn.double().T).abs().max() / fn.norm()
    norm = (square.sum(0) - flat.square().sum(-1)).abs().max()
    return {"close": bool(error < 1e-3 and norm < 1e-2), "told": told()}


def scenario_fp8_o_proj(packed_scales=True):
    """As flashinfer_sparse.py:559 calls it, with `wo_a` 2-D as the loader leaves it."""
    from types import SimpleNamespace

    import torch
    from vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant import (
        fused_inv_rope_fp8_quant,
    )
    from vllm.models.deepseek_v4.nvidia import flashinfer_sparse

    torch.manual_seed(0)
    tokens, groups, heads, rank = 3, 2, 1, 128
    depth = heads * 512
    o = torch.randn(tokens, groups * heads, 512).bfloat16()
    table = torch.cat([torch.ones(8, 32), torch.zeros(8, 32)], dim=1)  # angle 0: no rotation
    weight = torch.randn(groups * rank, depth).clamp(-3, 3).to(torch.float8_e4m3fn)
    scale = torch.rand(groups * rank // 128, depth // 128) + 0.5
    z = flashinfer_sparse.deep_gemm_fp8_o_proj(
        o, torch.arange(tokens), table, SimpleNamespace(weight=weight, weight_scale_inv=scale),
        lambda flat: flat, n_groups=groups, heads_per_group=heads, nope_dim=448, rope_dim=64,
        o_lora_rank=rank, einsum_recipe=(1, 1, 128), tma_aligned_scales=packed_scales,
    )  # fmt: skip
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    full = (weight.double() * wide).view(groups, rank, depth)
    # Against what the engine's own quantisation makes of o, which is itself 0.07 off.
    quantised, scales = fused_inv_rope_fp8_quant(
        o, torch.arange(tokens), table, n_groups=groups, heads_per_group=heads, nope_dim=448,
        rope_dim=64, tma_aligned_scales=False,
    )  # fmt: skip
    blocks = quantised.double().unflatten(2, (-1, 128)) * scales.double()[..., None]
    exact = torch.einsum("tgk,grk->tgr", blocks.flatten(2), full).flatten(1)
    error = (z.double() - exact).norm() / exact.norm()
    return {"close": bool(error < 0.01), "told": told()}


def scenario_mqa_logits():
    """As sparse_attn_indexer.py:500 calls it."""
    import torch
    from vllm.model_executor.layers import sparse_attn_indexer as consumer

    torch.manual_seed(0)
    q = torch.randn(3, 64, 128).to(torch.float8_e4m3fn)
    k = torch.randn(70, 128).to(torch.float8_e4m3fn)
    k_scale, weights = torch.rand(70) + 0.5, torch.randn(3, 64)
    low = torch.tensor([0, 5, 64], dtype=torch.int32)
    high = torch.tensor([70, 60, 64], dtype=torch.int32)
    logits = consumer.fp8_fp4_mqa_logits(
        (q, None), (k, k_scale), weights, low, high, clean_logits=False
    )
    dots = torch.einsum("mhd,nd->mhn", q.double(), k.double()).relu()
    exact = k_scale.double() * torch.einsum("mh,mhn->mn", weights.double(), dots)
    inside = [(logits[m, a:b] - exact[m, a:b]).abs() for m, (a, b) in
              enumerate(zip(low.tolist(), high.tolist(), strict=True))]  # fmt: skip
    error = max(float(part.max()) for part in inside if part.numel()) / float(exact.abs().max())
    return {"close": error < 1e-3, "told": told()}


def scenario_paged_mqa_logits():
    """As mla/indexer.py:951 and sparse_attn_indexer.py:603 call it: schedule, then logits."""
    import torch
    from vllm.model_executor.layers import sparse_attn_indexer as consumer
    from vllm.v1.attention.backends.mla import indexer

    torch.manual_seed(0)
    values = torch.randn(4, 64, 128).to(torch.float8_e4m3fn)
    scales = torch.rand(4, 64) + 0.5
    cache = torch.zeros(4, 64 * 132, dtype=torch.uint8)
    cache[:, : 64 * 128] = values.view(torch.uint8).flatten(1)
    cache[:, 64 * 128 :] = scales.view(torch.uint8).flatten(1)
    q, weights = torch.randn(2, 1, 64, 128).to(torch.float8_e4m3fn), torch.randn(2, 64)
    lens = torch.tensor([[100], [7]], dtype=torch.int32)
    table = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32)
    buffer = torch.full((49, 2), 7, dtype=torch.int32)
    buffer[:] = indexer.get_paged_mqa_logits_metadata(lens, 64, 48)
    logits = consumer.fp8_fp4_paged_mqa_logits(
        (q, None), cache.view(4, 64, 1, 132), weights, lens, table, buffer, max_model_len=128,
        clean_logits=False,
    )  # fmt: skip
    errors = []
    for row, length in enumerate(lens.flatten().tolist()):
        keys = (values.double() * scales.double()[..., None])[table[row].long()].view(-1, 128)
        dots = (q[row, 0].double() @ keys[:length].T).relu()
        exact = weights[row].double() @ dots
        errors.append(float((logits[row, :length] - exact).abs().max() / exact.abs().max()))
    return {"close": max(errors) < 1e-3, "told": told()}


def scenario_rows_of_a_request(drafts):
    """Six rows on one table, as stock flattens five drafts and one, on a GB10 that is not there.

    `drafts` as the warm-up of a worker has told them, or None where it has told nothing.
    """
    import torch
    from vllm.model_executor.layers import sparse_attn_indexer as consumer

    from twinspark import report, selection
    from twinspark.kernels.dispatch import Target
    from twinspark.kernels.paged_mqa_logits.reference import paged_mqa_logits

    selection.operation("paged_mqa_logits").runnable = lambda *_, **__: Target(121, 48)
    if drafts is not None:
        selection.expect_rows(drafts + 1)
    torch.manual_seed(0)
    cache = torch.zeros(3, 64 * 132, dtype=torch.uint8)
    cache[:, : 64 * 128] = torch.randn(3, 8192).to(torch.float8_e4m3fn).view(torch.uint8)
    cache[:, 64 * 128 :] = (torch.rand(3, 64) + 0.5).view(torch.uint8)
    q, weights = torch.randn(6, 1, 64, 128).to(torch.float8_e4m3fn), torch.randn(6, 64)
    lens = torch.arange(95, 101, dtype=torch.int32)[:, None]
    table = torch.tensor([[2, 0]] * 6, dtype=torch.int32)
    args = (cache.view(3, 64, 1, 132), weights, lens, table)
    logits = consumer.fp8_fp4_paged_mqa_logits(
        (q, None), *args, torch.zeros(49, 2, dtype=torch.int32), max_model_len=128,
        clean_logits=True,
    )  # fmt: skip
    exact = paged_mqa_logits(q, *args, 128)
    inside = exact.isfinite()
    error = (logits[inside] - exact[inside]).abs().max() / exact[inside].abs().max()
    (kernel,) = report.current().as_dict()["kernels"]
    return {"close": bool(error < 1e-3), "reason": kernel["reason"], "kernel": kernel["kernel"]}


def refused(call):
    from twinspark.kernels.dispatch import KernelError

    try:
        call()
    except KernelError as error:
        return str(error)
    return None


def scenario_refusals():
    """What the hooks themselves refuse, before a kernel is asked."""
    import torch
    from vllm.model_executor.layers import sparse_attn_indexer as consumer
    from vllm.utils.deep_gemm import tf32_hc_prenorm_gemm

    q, scale = torch.zeros(2, 64, 64, dtype=torch.int8), torch.zeros(2, 64, dtype=torch.int32)
    x, fn = torch.zeros(5, 4, 64).bfloat16(), torch.zeros(24, 256)
    none = (None,) * 4
    return [
        refused(lambda: consumer.fp8_fp4_mqa_logits((q, scale), (None, None), *none[:3])),
        refused(lambda: consumer.fp8_fp4_paged_mqa_logits((q, scale), *none, None, 128)),
        refused(lambda: tf32_hc_prenorm_gemm(x, fn, torch.zeros(3, 5, 24), torch.zeros(3, 5), 2)),
        refused(lambda: tf32_hc_prenorm_gemm(x, fn, torch.zeros(()), torch.zeros(3, 5), 2)),
        refused(lambda: tf32_hc_prenorm_gemm(x[0, 0], fn, torch.zeros(2, 5, 24), fn, 2)),
    ]


SCENARIOS = {
    "hc_prenorm_gemm": scenario_hc_prenorm_gemm,
    "fp8_o_proj": scenario_fp8_o_proj,
    "mqa_logits": scenario_mqa_logits,
    "paged_mqa_logits": scenario_paged_mqa_logits,
}


def stand_in(launcher):
    """Put our own kernels where stock keeps DeepGEMM's: what mode `check` compares with here."""
    from vllm.utils import deep_gemm

    from twinspark import selection

    def hc_prenorm_gemm(x, fn, out, square, _splits):
        flat = x.flatten(1)
        launcher("hc_prenorm_gemm", flat, fn, out, square)(flat, fn, out, square)

    def einsum(_equation, left, right, out, **_recipe):
        grouped = selection.operation("fp8_o_proj").grouped(*right, left[0].shape[1])
        args = (*left, *grouped, out)
        launcher("fp8_o_proj", *args)(*args)

    def mqa_logits(q, kv, *rest, clean_logits):
        args = (q[0], *kv, *rest)
        return launcher("mqa_logits", *args)(*args, clean_logits=clean_logits)

    def paged_mqa_logits(q, *rest, clean_logits):
        *tensors, _plan, keys = rest
        args = (q[0], *tensors)
        return launcher("paged_mqa_logits", *args)(*args, keys, clean_logits=clean_logits)

    deep_gemm._tf32_hc_prenorm_gemm_impl = hc_prenorm_gemm
    deep_gemm._fp8_einsum_impl = einsum
    deep_gemm._fp8_fp4_mqa_logits_impl = mqa_logits
    deep_gemm._fp8_fp4_paged_mqa_logits_impl = paged_mqa_logits
    deep_gemm._get_paged_mqa_logits_metadata_impl = lambda lens, *_: lens.new_zeros(())


def scenario_check(op, factor):
    """The consumer in mode `check` with a kernel whose result is multiplied by `factor`."""
    import os

    from twinspark import report, selection

    intact = selection.launcher
    stand_in(intact)

    def launcher(name, *args, **hints):
        launch = intact(name, *args, **hints)

        def launched(*inner, **options):
            result = launch(*inner, **options)
            (inner[2] if result is None else result).mul_(factor)
            return result

        return launched

    selection.launcher = launcher
    os.environ["TWINSPARK_KERNELS"] = "check"
    run = scenario_fp8_o_proj if op == "fp8_o_proj" else SCENARIOS[op]
    value = run(packed_scales=False) if op == "fp8_o_proj" else run()
    selection.settle(quiet_s=0.0)
    document = report.current().as_dict()
    return value | {key: document[key] for key in ("agreement", "counters")}


@pytest.mark.vllm
@pytest.mark.parametrize("op", OPERATIONS)
def test_consumer__reproduces_on_pristine(pristine, op):
    error = pristine.outcome(SCENARIOS[op])["error"]
    assert error.startswith("RuntimeError: DeepGEMM backend is unavailable")


@pytest.mark.vllm
@pytest.mark.parametrize("op", OPERATIONS)
def test_consumer__fixed(overlaid, op):
    seen = overlaid.run(SCENARIOS[op], timeout=240)
    assert seen["close"]
    assert op in seen["told"], "the choice is in the process report"


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("drafts", "rows", "kernel"), [(5, 6, "triton m2"), (0, 1, "triton m1"), (None, 1, "triton m1")]
)
def test_paged__pairs_the_rows_of_a_request_on_sm121(overlaid, drafts, rows, kernel):
    seen = overlaid.run(scenario_rows_of_a_request, drafts, timeout=240)
    assert seen["close"]
    assert seen["kernel"].startswith(kernel)
    assert f"{rows} rows a request" in seen["reason"]


@pytest.mark.vllm
def test_hooks__refuse_with_the_shapes(overlaid):
    said = overlaid.run(scenario_refusals)
    assert "mqa_logits: takes FP8 queries" in said[0]
    assert "paged_mqa_logits: takes FP8 queries" in said[1]
    assert all("got q (2, 64, 64)" in text and "scale (2, 64)" in text for text in said[:2])
    assert "2 shares into out (3, 5, 24)" in said[2]
    assert "2 shares into out ()" in said[3]
    assert "x must be of 2 dimensions; got x (64,)" in said[4]


@pytest.mark.vllm
@pytest.mark.parametrize("op", OPERATIONS)
def test_check__compares_and_serves_the_original(overlaid, op):
    seen = overlaid.run(scenario_check, op, 1.0, timeout=240)
    (found,) = seen["agreement"]
    assert seen["close"]
    assert (found["op"], found["calls"], found["disagreements"]) == (op, 1, 0)
    assert (found["relative_error"], found["rows"] > 0) == (0.0, True)
    assert seen["counters"] == {}


@pytest.mark.vllm
@pytest.mark.parametrize("op", OPERATIONS)
def test_check__finds_a_broken_kernel_and_still_serves_the_original(overlaid, op):
    seen = overlaid.run(scenario_check, op, 1.05, timeout=240)
    (found,) = seen["agreement"]
    assert seen["close"], "the original's result is used"
    assert found["disagreements"] == 1
    assert found["relative_error"] == pytest.approx(0.05, rel=0.05)
    assert seen["counters"] == {selection.COUNTERS[op]: 1}


@pytest.mark.vllm
@pytest.mark.parametrize("patch", sorted(set(OPERATIONS.values())))
def test_consumer__upstream_unchanged(patch):
    unchanged(patch)


def test_selection__defaults_to_ours_on_sm12x_only(monkeypatch):
    monkeypatch.delenv("TWINSPARK_KERNELS", raising=False)
    assert selection.skip_reason(Context("cuda", (12, 1))) is None
    assert "stock kernels serve" in (selection.skip_reason(Context("cuda", (9, 0))) or "")
    assert "stock kernels serve" in (selection.skip_reason(Context("cpu")) or "")


def test_selection__can_be_asked_for_elsewhere(monkeypatch):
    monkeypatch.setenv("TWINSPARK_KERNELS", "check")
    assert selection.skip_reason(Context("cuda", (9, 0))) is None
    assert selection.checking()
    assert selection.skip_reason(Context("cpu"))


def test_selection__deepgemm_keeps_ours_out(monkeypatch):
    monkeypatch.setenv("TWINSPARK_KERNELS", "deepgemm")
    assert "untested" in (selection.skip_reason(Context("cuda", (12, 1))) or "")
