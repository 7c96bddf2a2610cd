"""Inputs, gates, kernels and anchors of each operation (the indexer's in `cases_indexer.py`).

A gate compares with the float64 reference that the tests use, on fresh random inputs and outputs
poisoned with NaN, and raises: no time is reported on a red one.
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from cases_common import (
    BF16_LIMIT,
    CUDA,
    FP8,
    NAN,
    SQUARES_LIMIT,
    TWO_TERMS_LIMIT,
    Bench,
    RedGateError,
    deep_gemm,
    relative,
    sets,
)
from cases_indexer import mqa_bench, mqa_gate, paged_bench, paged_gate
from shapes import (
    C128A_WIDTH,
    GROUP_DEPTH,
    GROUPS,
    HC_DEPTH,
    MIXES,
    RANK,
    ROW_BYTES,
    hc_splits,
)

from twinspark.kernels import c128a_metadata, fp8_o_proj, hc_prenorm_gemm, zero_rows
from twinspark.kernels.c128a_metadata.reference import c128a_metadata as c128a_reference
from twinspark.kernels.fp8_o_proj.reference import fp8_o_proj as o_proj_reference
from twinspark.kernels.hc_prenorm_gemm.reference import hc_prenorm_gemm as hc_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from shapes import Shape

    from twinspark.kernels.config import Config

# ---------------------------------------------------------------- hc_prenorm_gemm


def hc_inputs(rows: int, splits: int, depth: int = HC_DEPTH) -> tuple[torch.Tensor, ...]:
    """Random residual streams and mixing matrix, outputs poisoned."""
    x = torch.randn(rows, depth, device=CUDA).bfloat16()
    fn = torch.randn(MIXES, depth, device=CUDA) * depth**-0.5
    out = torch.full((splits, rows, MIXES), NAN, device=CUDA)
    return x, fn, out, torch.full((splits, rows), NAN, device=CUDA)


def hc_gate(config: Config | None = None) -> float:
    """Few and many rows, odd depth, splits that do not divide it."""
    worst = 0.0
    for rows, splits, depth in ((6, 16, 16_384), (131, 3, 4096), (72, 7, 4128)):
        args = hc_inputs(rows, splits, depth)
        run, _ = hc_prenorm_gemm.dispatch(*args, config=config)
        run(*args)
        want, squares = hc_reference(args[0], args[1])
        worst = max(worst, relative(args[2].sum(0), want, TWO_TERMS_LIMIT))
        worst = max(worst, relative(args[3].sum(0), squares, SQUARES_LIMIT))
    return worst


def hc_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours and DeepGEMM's at several splits, and torch."""
    rows = shape.sizes["rows"]
    bench = Bench()
    for splits in hc_splits(rows):
        inputs = [hc_inputs(rows, splits) for _ in range(sets(shape))]
        for config in configs:
            run, reason = hc_prenorm_gemm.dispatch(*inputs[0], config=config)
            calls = [lambda a=a, run=run: run(*a) for a in inputs]
            bench.add(config, reason, calls, f" splits={splits}")
        if module := deep_gemm():
            bench.anchors[f"deepgemm splits={splits}"] = [
                lambda a=a, s=splits: module.tf32_hc_prenorm_gemm(*a, s) for a in inputs
            ]
    inputs = [hc_inputs(rows, 1) for _ in range(sets(shape))]
    bench.anchors["torch"] = [
        lambda a=a: (a[0].float() @ a[1].T, a[0].float().square().sum(-1)) for a in inputs
    ]
    return bench


# ---------------------------------------------------------------- fp8_o_proj


def o_proj_inputs(
    tokens: int, groups: int = GROUPS, ranks: int = RANK, depth: int = GROUP_DEPTH
) -> tuple[torch.Tensor, ...]:
    """As the engine's quantizer and loader leave them: x [G, T, K] transposed, scales by token."""
    x = torch.randn(groups, tokens, depth, device=CUDA).to(FP8).transpose(0, 1)
    padded = -(-tokens // 4) * 4
    scales = torch.randint(-3, 4, (groups, depth // 128, padded), device=CUDA)
    x_scale = torch.exp2(scales.float()).permute(2, 0, 1)[:tokens]
    weight = torch.randn(groups, ranks, depth, device=CUDA).to(FP8)
    w_scale = torch.rand(groups, ranks // 128, depth // 128, device=CUDA) * 0.02 + 0.01
    out = torch.full((tokens, groups, ranks), NAN, device=CUDA, dtype=torch.bfloat16)
    return x, x_scale, weight, w_scale, out


O_PROJ_GATES = ((1, 2), (6, 4), (77, 2), (300, 1), (601, 2))  # tokens, groups


def o_proj_gate(config: Config | None = None) -> float:
    """One, few and many tokens; the output is bfloat16, so 2^-9 a value."""
    worst = 0.0
    for tokens, groups in O_PROJ_GATES:
        args = o_proj_inputs(tokens, groups, 256, 512)
        run, _ = fp8_o_proj.dispatch(*args, config=config)
        worst = max(worst, relative(run(*args), o_proj_reference(*args[:4]), BF16_LIMIT))
    return worst


def o_proj_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours, DeepGEMM's einsum, and cuBLAS in bfloat16."""
    tokens = shape.sizes["tokens"]
    inputs = [o_proj_inputs(tokens) for _ in range(sets(shape))]
    bench = Bench()
    for config in configs:
        run, reason = fp8_o_proj.dispatch(*inputs[0], config=config)
        bench.add(config, reason, [lambda a=a, run=run: run(*a) for a in inputs])
    if module := deep_gemm():
        bench.anchors["deepgemm"] = [
            lambda a=a: module.fp8_einsum("bhr,hdr->bhd", a[:2], a[2:4], a[4], recipe=(1, 128, 128))
            for a in inputs
        ]
    pairs = [(a[0].transpose(0, 1).bfloat16(), a[2].bfloat16().transpose(1, 2)) for a in inputs]
    bench.anchors["cublas bf16"] = [lambda p=p: torch.bmm(*p) for p in pairs]
    return bench


# ---------------------------------------------------------------- zero_rows


def zero_gate(config: Config | None = None) -> float:
    """Every byte of the rows asked for, first and last included, and no other."""
    cache = torch.randint(1, 256, (9, ROW_BYTES), dtype=torch.uint8, device=CUDA)
    want = cache.clone()
    ids = torch.tensor([0, 8, 3], device=CUDA)
    want[ids] = 0
    run, _ = zero_rows.dispatch(cache, ids, config=config)
    run(cache, ids)
    if not torch.equal(cache, want):
        raise RedGateError("zeroed bytes are not exactly those of the rows asked for")
    return 0.0


def zero_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours on scattered rows, against a memset of as many adjacent bytes."""
    rows, count = shape.sizes["rows"], sets(shape)
    cache = torch.empty(max(1024, count * rows), ROW_BYTES, dtype=torch.uint8, device=CUDA)
    order = torch.randperm(cache.shape[0], device=CUDA)
    ids = [order[i * rows : (i + 1) * rows].contiguous() for i in range(count)]
    bench = Bench()
    for config in configs:
        run, reason = zero_rows.dispatch(cache, ids[0], config=config)
        bench.add(config, reason, [lambda i=i, run=run: run(cache, i) for i in ids])
    bench.add_memset([cache[at * rows : (at + 1) * rows] for at in range(count)])
    return bench


# ---------------------------------------------------------------- c128a_metadata


def c128a_inputs(decodes: int, prefills: int, context: int, active: int) -> tuple[Any, ...]:
    """Stock's arguments for decodes at the end of a context and a prefill that ends there."""
    tokens = decodes + prefills
    tail = torch.arange(context - prefills, context, device=CUDA)
    positions = torch.cat([torch.full((decodes,), context - 1, device=CUDA), tail])
    requests = torch.arange(tokens, device=CUDA, dtype=torch.int32).clamp(max=max(decodes - 1, 0))
    table = torch.randint(0, 9999, (max(decodes, 1), 4096), dtype=torch.int32, device=CUDA)
    slots = torch.zeros(tokens, dtype=torch.int64, device=CUDA)
    decode, prefill = (
        torch.full((max(tokens, 1), C128A_WIDTH), -7, dtype=torch.int32, device=CUDA)
        for _ in range(2)
    )
    lens = torch.full((max(tokens, 1),), -7, dtype=torch.int32, device=CUDA)
    return positions, 128, decodes, requests, table, 2, slots, decode, lens, prefill, active


def c128a_gate(config: Config | None = None) -> float:
    """Decode rows at the buffer's stride and nothing written past a row's last 128 entries."""
    args = c128a_inputs(5, 33, 100_000, 1024)
    args[0][:5] = torch.tensor([0, 127, 128, 99_999, 5000], device=CUDA)
    args[6][2] = -1
    run, _ = c128a_metadata.dispatch(args[0], args[4], args[7], args[9], args[10], config=config)
    decode, lens, prefill = run(*args)
    host = [a.cpu() if isinstance(a, torch.Tensor) else a for a in args]
    rows, want_lens, want_prefill = c128a_reference(
        host[0], 128, 5, host[3], host[4], 2, host[6], 1024
    )
    right = torch.equal(lens.cpu().long(), want_lens) and torch.equal(
        prefill.cpu().long(), want_prefill
    )
    for got, row in zip(decode.cpu(), rows, strict=True):
        n = len(row)
        end = max(-(-n // 128), 1) * 128
        right &= torch.equal(got[:n].long(), row) and bool((got[n:end] == -1).all())
        right &= bool((got[end:] == -7).all())
    if not right:
        raise RedGateError("C128A metadata differ from the reference")
    return 0.0


def c128a_bench(shape: Shape, configs: list[Config | None]) -> Bench:
    """Ours against a memset of as many bytes."""
    sizes = [shape.sizes[name] for name in ("decodes", "prefills", "context", "active")]
    inputs = [c128a_inputs(*sizes) for _ in range(sets(shape))]
    bench = Bench()
    for config in configs:
        a = inputs[0]
        run, reason = c128a_metadata.dispatch(a[0], a[4], a[7], a[9], a[10], config=config)
        bench.add(config, reason, [lambda a=a, run=run: run(*a) for a in inputs])
    targets = torch.empty(len(inputs), int(shape.bytes), dtype=torch.uint8, device=CUDA)
    bench.add_memset(list(targets))
    return bench


GATES: dict[str, Callable[..., float]] = {
    "mqa_logits": mqa_gate,
    "paged_mqa_logits": paged_gate,
    "hc_prenorm_gemm": hc_gate,
    "fp8_o_proj": o_proj_gate,
    "zero_rows": zero_gate,
    "c128a_metadata": c128a_gate,
}
BENCHES: dict[str, Callable[[Any, Any], Bench]] = {
    "mqa_logits": mqa_bench,
    "paged_mqa_logits": paged_bench,
    "hc_prenorm_gemm": hc_bench,
    "fp8_o_proj": o_proj_bench,
    "zero_rows": zero_bench,
    "c128a_metadata": c128a_bench,
}
