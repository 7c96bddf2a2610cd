"""Triton kernel of the grouped output projection in block-scaled FP8."""
# ruff: noqa: ANN001, ANN202, N803, PLR0913 - a jitted function's parameters are Triton's, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

SCALE_BLOCK = 128  # elements of depth, and rows of the weight, that share one scale


@triton.jit
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
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One [BM tokens, BN ranks] tile of one group; each 128 of depth is scaled and added in float32.

    SWAP puts the weight on the product's row side, where a tile of few tokens still fills the
    64-row matrix instruction.
    """
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
    if SWAP:
        acc = tl.zeros((BN, BM), dtype=tl.float32)
    else:
        acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, depth // BK, num_stages=STAGES):
        if TMA:
            x = x_src.load([(g * tokens + t0).to(tl.int32), step * BK])
            w = w_src.load([(g * ranks + r0).to(tl.int32), step * BK])
        else:
            x = tl.load(x_row + step * BK, mask=t_ok[:, None], other=0.0)
            w = tl.load(w_row + step * BK, mask=r_ok[:, None], other=0.0)
        xs = tl.load(xs_row + (step * BK // 128) * xs_stride_k, mask=t_ok, other=0.0)
        ws = tl.load(ws_row + (step * BK // 128) * ws_stride_k)
        if SWAP:
            acc += tl.dot(w, tl.trans(x)) * (xs * ws)[None, :]
        else:
            acc += tl.dot(x, tl.trans(w)) * (xs * ws)[:, None]
    if SWAP:
        acc = tl.trans(acc)
    out = out_ptr + g * out_stride_g + t[:, None].to(tl.int64) * out_stride_t + r[None, :]
    tl.store(out, acc.to(tl.bfloat16), mask=t_ok[:, None] & r_ok[None, :])
