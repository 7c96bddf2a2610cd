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
    deep_gemm,
    relative,
    sets,
    written_inside,
)
from shapes import DIM, HEADS

from twinspark.kernels import mqa_logits, paged_mqa_logits
from twinspark.kernels.mqa_logits.reference import mqa_logits as mqa_reference
from twinspark.kernels.paged_mqa_logits.reference import paged_mqa_logits as paged_reference

if TYPE_CHECKING:
    from shapes import Shape

    from twinspark.kernels.config import Config

# ---------------------------------------------------------------- mqa_logits

# Odd sizes. With the second's 36 steps of 128 keys for 34 pairs of rows, several programs share a
# block of rows on any card: the Gluon form's path of its own on sm_90.
MQA_GATES = ((67, 1333), (67, 4500))


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


def gate_bounds(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows] int32 each, rows > 64: random runs of keys, and one of each edge, next to each other.

    Whole, empty, reversed, before the first key, past the last, one key, up to a step's boundary.
    """
    ends = torch.randint(0, keys + 1, (2, rows)).sort(0).values
    edges = ((0, keys), (9, 9), (keys, 3), (-5, 40), (keys - 70, keys + 17), (777, 778), (64, 256))
    for row, bounds in enumerate(edges):
        ends[:, 3 * row] = torch.tensor(bounds)
    ends[:, 60:64] = keys  # a program's rows may all be empty
    ends[:, -1] = torch.tensor((1, keys - 1))  # the last program's only row
    ks, ke = ends.int()
    return ks.contiguous().to(CUDA), ke.contiguous().to(CUDA)


def mqa_gate(config: Config | None = None) -> float:
    """Odd sizes, bounds that move at both ends, empty rows, nothing written outside."""
    worst = 0.0
    for rows, keys in MQA_GATES:
        args = (*mqa_inputs(rows, keys, 4 * keys)[:4], *gate_bounds(rows, keys))
        run, _ = mqa_logits.dispatch(*args, config=config)
        whole = torch.full((rows, -(-keys // 256) * 256 + 256), NAN, device=CUDA)
        run(*args, out=whole[:, :keys])
        want = mqa_reference(*args)
        worst = max(worst, relative(whole[:, :keys], want, FP8_LIMIT))
        written_inside(whole, want)
    return worst


def mqa_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours, DeepGEMM's, and the chunked torch path at the smallest case."""
    sizes = shape.sizes
    keys, width = sizes["keys"], -(-sizes["keys"] // 256) * 256
    inputs = [mqa_inputs(sizes["rows"], keys, sizes["context"]) for _ in range(sets(shape))]
    outs = [torch.empty(sizes["rows"], width, device=CUDA)[:, :keys] for _ in inputs]
    bench = Bench()
    for config in configs:
        run, reason = mqa_logits.dispatch(*inputs[0], config=config)
        pairs = zip(inputs, outs, strict=True)
        bench.add(config, reason, [lambda a=a, o=o, run=run: run(*a, out=o) for a, o in pairs])
    if module := deep_gemm():
        bench.anchors["deepgemm"] = [
            lambda a=a: module.fp8_mqa_logits(a[0], a[1:3], *a[3:], clean_logits=False)
            for a in inputs
        ]
    if sizes["context"] <= 16_384:
        bench.anchors["torch"] = [lambda a=a: torch_mqa(*a) for a in inputs]
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


def paged_inputs(
    cache: torch.Tensor, rows: int, keys: int, share: int, ids: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """Flattened speculative rows, `share` of them on one block table; a row sees one key more.

    The tables hold `ids` in order, by default random pages of the cache.
    """
    q = torch.randn(rows, 1, HEADS, DIM, device=CUDA).to(FP8)
    weights = torch.randn(rows, HEADS, device=CUDA)
    lens = (keys - torch.arange(rows, device=CUDA) % 2).int()[:, None].contiguous()
    pages = -(-keys // 64)
    count = rows // share * pages
    if ids is None:
        rounds = -(-count // cache.shape[0])
        ids = torch.cat([torch.randperm(cache.shape[0], device=CUDA) for _ in range(rounds)])
    table = ids[:count].view(rows // share, pages).int()
    return q, cache, weights, lens, table.repeat_interleave(share, 0).contiguous()


def paged_gate(config: Config | None = None) -> float:
    """Unequal rows, an empty one, pages far apart, shared and unshared tables, NaN outside."""
    worst = 0.0
    counts = [1, 1100, 64, 0, 65, 1099, 500, 128, 3]
    for share in (1, 3):
        q, cache, weights, _, table = paged_inputs(paged_cache(40, 8640), 9, 1100, share)
        lens = torch.tensor(counts, dtype=torch.int32, device=CUDA)[:, None]
        args = (q, cache, weights, lens, table)
        run, _ = paged_mqa_logits.dispatch(*args, config=config)
        whole = torch.full((9, 1280), NAN, device=CUDA)
        run(*args, 1152, out=whole[:, :1152])
        want = paged_reference(*args, 1152)
        worst = max(worst, relative(whole[:, :1152], want, FP8_LIMIT))
        written_inside(whole, want)
    return worst


def paged_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours and DeepGEMM's over one large cache, each set of inputs on pages of its own."""
    rows, keys, share = (shape.sizes[name] for name in ("rows", "keys", "share"))
    pages = rows // share * (keys // 64)
    cache = paged_cache(max(sets(shape) * pages, 2 * L2_TWICE // (64 * 132)))
    order = torch.randperm(cache.shape[0], device=CUDA)
    inputs = [
        paged_inputs(cache, rows, keys, share, order[i * pages : (i + 1) * pages])
        for i in range(sets(shape))
    ]
    outs = [torch.empty(rows, keys, device=CUDA) for _ in inputs]
    bench = Bench()
    for config in configs:
        run, reason = paged_mqa_logits.dispatch(*inputs[0], rows_per_request=share, config=config)
        pairs = zip(inputs, outs, strict=True)
        bench.add(config, reason, [lambda a=a, o=o, f=run: f(*a, keys, out=o) for a, o in pairs])
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
