"""Triton kernel of the grouped output projection in block-scaled FP8."""
# ruff: noqa: ANN001, ANN201, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

SCALE_BLOCK = 128  # elements of depth, and rows of the weight, that share one scale
# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
VARYING = ("tokens", "xs_stride_g", "xs_stride_k")


@triton.jit(do_not_specialize=VARYING)
def fp8_o_proj_kernel(
    x_src,  # TMA: descriptor over [G*T, K], box [BM, K step]; else pointer to [T, G, K] e4m3
    w_src,  # TMA: descriptor over [G*R, K], box [BN, K step]; else pointer to [G, R, K] e4m3
    x_scale_ptr,  # [T, G, K/128] f32
    w_scale_ptr,  # [G, R/128, K/128] f32
    out_ptr,  # [T, G, R] bf16
    tokens,
    ranks,
    depth,
    x_stride_t,
    x_stride_g,
    w_stride_g,
    w_stride_r,
    xs_stride_t,
    xs_stride_g,
    xs_stride_k,
    ws_stride_g,
    ws_stride_r,
    ws_stride_k,
    out_stride_t,
    out_stride_g,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TMA: tl.constexpr,
    FAR: tl.constexpr,  # a scale lies 2^31 elements or more from its row's first
    STAGES: tl.constexpr,
):
    """One [BM tokens, BN ranks] tile of a group; each 128 of depth is scaled, added in float32."""
    g = tl.program_id(2).to(tl.int64)
    r0 = tl.program_id(0) * BN
    t0 = tl.program_id(1) * BM
    t = t0 + tl.arange(0, BM)
    r = r0 + tl.arange(0, BN)
    k = tl.arange(0, BK)
    t_ok = t < tokens
    r_ok = r < ranks
    xs_row = x_scale_ptr + g * xs_stride_g + t.to(tl.int64) * xs_stride_t
    ws_row = w_scale_ptr + g * ws_stride_g + (r0 // 128).to(tl.int64) * ws_stride_r
    if not TMA:
        x_row = x_src + g * x_stride_g + t[:, None].to(tl.int64) * x_stride_t + k[None, :]
        w_row = w_src + g * w_stride_g + r[:, None].to(tl.int64) * w_stride_r + k[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, depth // BK, num_stages=STAGES):
        if TMA:
            x = x_src.load([(g * tokens + t0).to(tl.int32), step * BK])
            w = w_src.load([(g * ranks + r0).to(tl.int32), step * BK])
        else:
            x = tl.load(x_row + step * BK, mask=t_ok[:, None], other=0.0)
            w = tl.load(w_row + step * BK, mask=r_ok[:, None], other=0.0)
        block = step * BK // 128
        if FAR:
            block = tl.cast(block, tl.int64)
        xs = tl.load(xs_row + block * xs_stride_k, mask=t_ok, other=0.0)
        ws = tl.load(ws_row + block * ws_stride_k)
        acc += tl.dot(x, tl.trans(w)) * (xs * ws)[:, None]
    out = out_ptr + g * out_stride_g + t[:, None].to(tl.int64) * out_stride_t + r[None, :]
    tl.store(out, acc.to(tl.bfloat16), mask=t_ok[:, None] & r_ok[None, :])


@triton.jit(do_not_specialize=VARYING)
def fp8_o_proj_few_kernel(
    x_ptr,  # [T, G, K] e4m3
    w_ptr,  # [G, R, K] e4m3
    x_scale_ptr,  # [T, G, K/128] f32
    w_scale_ptr,  # [G, R/128, K/128] f32
    out_ptr,  # [T, G, R] bf16
    tokens,
    ranks,
    depth,
    x_stride_t,
    x_stride_g,
    w_stride_g,
    w_stride_r,
    xs_stride_t,
    xs_stride_g,
    xs_stride_k,
    ws_stride_g,
    ws_stride_r,
    ws_stride_k,
    out_stride_t,
    out_stride_g,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BLOCKS: tl.constexpr,  # scale blocks of 128 a step, each with its own sum until the end
    FAR: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Few tokens: BLOCKS scale blocks of the depth go through the loop side by side.

    With a handful of tokens a step is all latency, so the steps are made few. The sums of the
    blocks are separate matrices, shared out over the warps and added once.
    """
    g = tl.program_id(2).to(tl.int64)
    r0 = tl.program_id(0) * BN
    t = tl.program_id(1) * BM + tl.arange(0, BM)
    r = r0 + tl.arange(0, BN)
    b = tl.arange(0, BLOCKS)
    k = b[:, None, None] * 128 + tl.arange(0, 128)[None, None, :]
    t_ok = t < tokens
    r_ok = r < ranks
    x_row = x_ptr + g * x_stride_g + (t.to(tl.int64) * x_stride_t)[None, :, None] + k
    w_row = w_ptr + g * w_stride_g + (r.to(tl.int64) * w_stride_r)[None, :, None] + k
    xs_row = x_scale_ptr + g * xs_stride_g + t.to(tl.int64) * xs_stride_t
    ws_row = w_scale_ptr + g * ws_stride_g + (r0 // 128).to(tl.int64) * ws_stride_r
    acc = tl.zeros((BLOCKS, BN, BM), dtype=tl.float32)
    for step in tl.range(0, depth // (128 * BLOCKS), num_stages=STAGES):
        at = step * BLOCKS + b
        if FAR:
            at = at.to(tl.int64)
        x = tl.load(x_row + step * 128 * BLOCKS, mask=t_ok[None, :, None], other=0.0)
        w = tl.load(w_row + step * 128 * BLOCKS, mask=r_ok[None, :, None], other=0.0)
        xs_at = xs_row[None, :] + at[:, None] * xs_stride_k
        xs = tl.load(xs_at, mask=t_ok[None, :], other=0.0)
        scale = xs * tl.load(ws_row + at * ws_stride_k)[:, None]
        acc += tl.dot(w, tl.permute(x, (0, 2, 1))) * scale[:, None, :]
    total = tl.trans(tl.sum(acc, axis=0))
    out = out_ptr + g * out_stride_g + t[:, None].to(tl.int64) * out_stride_t + r[None, :]
    tl.store(out, total.to(tl.bfloat16), mask=t_ok[:, None] & r_ok[None, :])
