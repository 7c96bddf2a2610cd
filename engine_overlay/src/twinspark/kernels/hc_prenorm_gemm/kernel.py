"""Triton kernel of the hyper-connection product and sum of squares before the norm."""
# ruff: noqa: ANN001, ANN201, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

MIXES = 24  # rows of fn: 2*4 + 4*4 for four residual streams
MIXES_PADDED = 32


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@triton.jit(do_not_specialize=("rows", "out_stride_split", "square_stride"))
def hc_prenorm_gemm_kernel(
    x_ptr,  # TMA: descriptor over [M, K], box [BM, BK]; else pointer to bf16
    fn_ptr,  # TMA: descriptor over [MIXES, K], box [BN, BK]; else pointer to f32
    out_ptr,  # [SPLITS, M, MIXES] f32
    square_ptr,  # [SPLITS, M] f32
    rows,
    depth,
    x_stride,
    fn_stride,
    out_stride_split,
    out_stride_row,
    square_stride,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    TERMS: tl.constexpr,
    WIDE: tl.constexpr,
    TMA: tl.constexpr,
):
    """BM rows over one split of the depth.

    x is bf16 already, so only fn is rounded. As a sum of TERMS bf16 numbers it keeps 8 bits of
    mantissa a term and runs at bf16's rate: two terms are finer than one tf32 product.
    """
    row0 = tl.program_id(0).to(tl.int64) * BM
    split = tl.program_id(1)
    steps = (depth + BK - 1) // BK
    each = (steps + tl.num_programs(1) - 1) // tl.num_programs(1)
    r = row0 + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    if not TMA:
        x_row = x_ptr + r[:, None] * x_stride
        fn_row = fn_ptr + n[None, :].to(tl.int64) * fn_stride
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    squares = tl.zeros((BM, BK), dtype=tl.float32)
    for step in tl.range(split * each, tl.minimum((split + 1) * each, steps), num_stages=STAGES):
        if TMA:
            x = x_ptr.load([row0.to(tl.int32), step * BK])
            fn = tl.trans(fn_ptr.load([0, step * BK]))
        else:
            at = step * BK + k
            x_ok = (r[:, None] < rows) & (at[None, :] < depth)
            x = tl.load(x_row + at[None, :], mask=x_ok, other=0.0)
            fn_ok = (n[None, :] < N) & (at[:, None] < depth)
            fn = tl.load(fn_row + at[:, None], mask=fn_ok, other=0.0)
        wide = x.to(tl.float32)
        if TERMS == 0:
            acc = tl.dot(wide, fn, acc, input_precision="tf32")
        for _ in tl.static_range(TERMS):
            term = fn.to(tl.bfloat16)
            if (
                WIDE
            ):  # Triton's interpreter multiplies bf16 operands as the integers they are held in
                acc = tl.dot(wide, term.to(tl.float32), acc, input_precision="ieee")
            else:
                acc = tl.dot(x, term, acc)
            fn -= term.to(tl.float32)
        squares += wide * wide
    out = out_ptr + split.to(tl.int64) * out_stride_split + r[:, None] * out_stride_row + n[None, :]
    tl.store(out, acc, mask=(r[:, None] < rows) & (n[None, :] < N))
    tl.store(
        square_ptr + split.to(tl.int64) * square_stride + r, tl.sum(squares, axis=1), mask=r < rows
    )
