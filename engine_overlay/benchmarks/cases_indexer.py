"""Inputs, gates, kernels and anchors of the indexer's two operations."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from cases_common import (
    CUDA,
    FP8,
    FP8_LIMIT,
    L2_TWICE,
    NAN,
    Bench,
    RedGateError,
    deep_gemm,
    relative,
)
from shapes import DIM, HEADS

from twinspark.kernels import mqa_logits, paged_mqa_logits
from twinspark.kernels.mqa_logits.reference import mqa_logits as mqa_reference
from twinspark.kernels.paged_mqa_logits.reference import paged_mqa_logits as paged_reference

if TYPE_CHECKING:
    from shapes import Shape

    from twinspark.kernels.config import Config

# ---------------------------------------------------------------- mqa_logits


def mqa_inputs(rows: int, keys: int, context: int) -> tuple[torch.Tensor, ...]:
    """Random queries and keys with the causal bounds of the last `rows` tokens of a context."""
    q = torch.randn(rows, HEADS, DIM, device=CUDA).to(FP8)
    k = torch.randn(keys, DIM, device=CUDA).to(FP8)
    k_scale = torch.rand(keys, device=CUDA) + 0.5
    weights = torch.randn(rows, HEADS, device=CUDA)
    ks = torch.zeros(rows, dtype=torch.int32, device=CUDA)
    ke = (torch.arange(rows, device=CUDA) + context - rows + 1).div(4, rounding_mode="floor").int()
    return q, k, k_scale, weights, ks, ke


def torch_mqa(q, k, k_scale, weights, ks, ke):  # noqa: ANN001, ANN201, PLR0913, PLR0917
    """What one writes without a kernel: float32 products in chunks of rows."""
    out = torch.empty(q.shape[0], k.shape[0], device=q.device)
    keys = k.float() * k_scale[:, None]
    n = torch.arange(k.shape[0], device=q.device)
    for at in range(0, q.shape[0], 128):
        part = slice(at, at + 128)
        score = torch.einsum("mhd,nd->mhn", q[part].float(), keys).relu_()
        out[part] = torch.einsum("mhn,mh->mn", score, weights[part])
        outside = (n < ks[part, None]) | (n >= ke[part, None])
        out[part].masked_fill_(outside, float("-inf"))
    return out


def mqa_gate(config: Config | None = None) -> float:
    """Odd sizes, moving bounds, NaN outside."""
    args = mqa_inputs(67, 1333, 5400)
    ks = torch.randint(0, 700, (67,), dtype=torch.int32, device=CUDA)
    args = (*args[:4], ks, args[5])
    run, _ = mqa_logits.dispatch(*args, config=config)
    out = torch.full((67, 1536), NAN, device=CUDA)[:, :1333]
    return relative(run(*args, out=out), mqa_reference(*args), FP8_LIMIT)


def mqa_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours, DeepGEMM's, and the chunked torch path at the smallest case."""
    sizes = shape.sizes
    args = mqa_inputs(sizes["rows"], sizes["keys"], sizes["context"])
    bench = Bench()
    width = -(-sizes["keys"] // 256) * 256
    out = torch.empty(sizes["rows"], width, device=CUDA)[:, : sizes["keys"]]
    for config in configs:
        run, reason = mqa_logits.dispatch(*args, config=config)
        bench.kernels[config.key if config else reason] = [lambda run=run: run(*args, out=out)]
    if module := deep_gemm():
        q, k, k_scale, weights, ks, ke = args
        bench.anchors["deepgemm"] = [
            lambda: module.fp8_mqa_logits(q, (k, k_scale), weights, ks, ke, clean_logits=False)
        ]
    if sizes["context"] <= 16_384:
        bench.anchors["torch"] = [lambda: torch_mqa(*args)]
    return bench


# ---------------------------------------------------------------- paged_mqa_logits


def paged_cache(blocks: int, stride: int = 64 * 132) -> torch.Tensor:
    """[blocks, 64, 1, 132] uint8 with pages `stride` bytes apart: values, then scales."""
    raw = torch.empty(blocks, stride, dtype=torch.uint8, device=CUDA)
    for at in range(0, blocks, 4096):
        part = raw[at : at + 4096]
        values = torch.randn(part.shape[0], 64 * 128, device=CUDA).to(FP8).view(torch.uint8)
        part[:, : 64 * 128] = values
        scales = torch.rand(part.shape[0], 64, device=CUDA) + 0.5
        part[:, 64 * 128 : 64 * 132] = scales.view(torch.uint8)
    return raw.as_strided((blocks, 64, 1, 132), (stride, 132, 132, 1))


def paged_inputs(cache: torch.Tensor, rows: int, keys: int, share: int) -> tuple[torch.Tensor, ...]:
    """Flattened speculative rows, `share` of them on one block table; a row sees one key more."""
    q = torch.randn(rows, 1, HEADS, DIM, device=CUDA).to(FP8)
    weights = torch.randn(rows, HEADS, device=CUDA)
    lens = (keys - torch.arange(rows, device=CUDA) % 2).int()[:, None].contiguous()
    pages = -(-keys // 64)
    tables = torch.cat([torch.randperm(cache.shape[0], device=CUDA) for _ in range(2)])
    while len(tables) < rows // share * pages:
        tables = torch.cat([tables, torch.randperm(cache.shape[0], device=CUDA)])
    table = tables[: rows // share * pages].view(rows // share, pages).int()
    return q, cache, weights, lens, table.repeat_interleave(share, 0).contiguous()


def paged_gate(config: Config | None = None) -> float:
    """Unequal rows, an empty one, pages far apart, shared and unshared tables, NaN outside."""
    worst = 0.0
    for share in (1, 3):
        cache = paged_cache(40, 8640)
        q, cache, weights, lens, table = paged_inputs(cache, 9, 1100, share)
        counts = [1, 1100, 64, 0, 65, 1099, 500, 128, 3]
        lens = torch.tensor(counts, dtype=torch.int32, device=CUDA)[:, None]
        args = (q, cache, weights, lens, table)
        run, _ = paged_mqa_logits.dispatch(*args, config=config)
        out = torch.full((9, 1280), NAN, device=CUDA)[:, :1152]
        run(*args, 1152, out=out)
        worst = max(worst, relative(out, paged_reference(*args, 1152), FP8_LIMIT))
        written = torch.isfinite(out).sum(1).cpu()
        if written.tolist() != counts:
            raise RedGateError(f"rows of {counts} keys had {written.tolist()} written")
    return worst


def paged_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours and DeepGEMM's over one large cache and several block tables."""
    rows, keys, share = (shape.sizes[name] for name in ("rows", "keys", "share"))
    pages = rows // share * (keys // 64)
    sets = max(1, min(32, L2_TWICE // (pages * 64 * 132)))
    cache = paged_cache(max(pages, 2 * L2_TWICE // (64 * 132)))
    inputs = [paged_inputs(cache, rows, keys, share) for _ in range(sets)]
    out = torch.empty(rows, keys, device=CUDA)
    bench = Bench()
    for config in configs:
        run, reason = paged_mqa_logits.dispatch(*inputs[0], rows_per_request=share, config=config)
        bench.kernels[config.key if config else reason] = [
            lambda a=a, run=run: run(*a, keys, out=out) for a in inputs
        ]
    if module := deep_gemm():
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        calls = []
        for q, pool, weights, lens, table in inputs:
            plan = module.get_paged_mqa_logits_metadata(lens, 64, processors)
            calls.append(
                lambda q=q, pool=pool, w=weights, n=lens, t=table, plan=plan: (
                    module.fp8_paged_mqa_logits(q, pool, w, n, t, plan, keys, clean_logits=False)
                )
            )
        bench.anchors["deepgemm"] = calls
    return bench
