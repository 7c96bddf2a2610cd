"""Triton kernel of the indexer's prefill logits."""
# ruff: noqa: ANN001, ANN201, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

HEADS = 64
HEAD_DIM = 128


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@triton.jit(do_not_specialize=("rows", "keys"), do_not_specialize_on_alignment=("ks_ptr", "ke_ptr"))
def mqa_logits_kernel(
    q_src,  # TMA: descriptor over [M*H, D], box [BM*H, D]; else pointer to [M, H, D] e4m3
    k_src,  # TMA: descriptor over [N, D], box [BN, D]; else pointer to [N, D] e4m3
    k_scale_ptr,  # [N] f32
    w_ptr,  # [M, H] f32
    ks_ptr,  # [M] i32, first key of the row
    ke_ptr,  # [M] i32, one past its last key
    out_ptr,  # [M, N] f32
    rows,
    keys,
    q_stride_m,
    q_stride_h,
    k_stride,
    w_stride,
    out_stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,  # None: only what feeds the product is pipelined, at the launch's depth
):
    """BM query rows against every SPLITS-th run of keys; queries stay, keys stream.

    The keys are the rows of the product, [BN, D] x [D, BM*H], so that the sum over heads runs along
    the accumulator's columns: 16 of them in each thread and one exchange among four lanes.
    """
    row0 = tl.program_id(0) * BM
    r = row0 + tl.arange(0, BM)
    row_ok = r < rows
    ks = tl.load(ks_ptr + r, mask=row_ok, other=2147483647)
    ke = tl.minimum(tl.load(ke_ptr + r, mask=row_ok, other=0), keys)
    first = tl.maximum(tl.min(ks, axis=0), 0) // BN
    last = (tl.max(ke, axis=0) + BN - 1) // BN
    each = (tl.maximum(last - first, 0) + tl.num_programs(1) - 1) // tl.num_programs(1)
    begin = first + tl.program_id(1) * each
    end = tl.minimum(begin + each, last)

    c = tl.arange(0, BM * H)
    d = tl.arange(0, D)
    c_row = (row0 + c // H).to(tl.int64)
    c_ok = row0 + c // H < rows
    if TMA:
        q = q_src.load([row0 * H, 0])
    else:
        q_at = c_row * q_stride_m + (c % H).to(tl.int64) * q_stride_h
        q = tl.load(q_src + q_at[:, None] + d[None, :], mask=c_ok[:, None], other=0.0)
    w = tl.load(w_ptr + c_row * w_stride + c % H, mask=c_ok, other=0.0)

    n = tl.arange(0, BN)
    out_row = out_ptr + r.to(tl.int64) * out_stride
    for tile in tl.range(begin, end, num_stages=STAGES):
        at = tile * BN + n
        if TMA:
            k = k_src.load([tile * BN, 0])
        else:
            k_at = at.to(tl.int64) * k_stride
            k = tl.load(k_src + k_at[:, None] + d[None, :], mask=(at < keys)[:, None], other=0.0)
        scale = tl.load(k_scale_ptr + at, mask=at < keys, other=0.0)
        s = tl.dot(k, tl.trans(q))
        s = tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL) * w[None, :]
        logits = tl.sum(tl.reshape(s, (BN, BM, H)), axis=2) * scale[:, None]
        inside = (at[:, None] >= ks[None, :]) & (at[:, None] < ke[None, :])
        tl.store(out_row[None, :] + at[:, None], logits, mask=inside)
