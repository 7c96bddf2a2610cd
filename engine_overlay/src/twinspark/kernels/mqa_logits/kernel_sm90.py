"""Gluon form of the prefill logits for sm_90 alone: two products in flight in each warpgroup.

Triton waits behind every product whose result is used in the same step of a loop, so that a
warpgroup's matrix and scalar work follow one another. Here a step's keys are two tiles: both
products are issued, and the first's sum over heads runs while the second multiplies. Only sm_90 has
these instructions; everywhere else `kernel.py` serves.
"""
# ruff: noqa: ANN001, ANN201, ANN202, N803, N806, PLR0913, PLR0917 - Gluon's, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _issue(
    k_desc, k_s, bars, tile, index, end, BN: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr
):
    """Start copying one step's keys into its stage, if there is such a step."""
    stage = index % STAGES
    more = tile < end
    bar = bars.index(stage)
    mbarrier.expect(bar, BN * D, pred=more)
    tma.async_copy_global_to_shared(k_desc, [tile * BN, 0], bar, k_s.index(stage), pred=more)


@gluon.jit
def _finish(
    s,
    scale,
    w,
    at,
    ks,
    ke,
    out_row,
    out_l: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    H: gl.constexpr,
):
    """Sum one tile's products over the heads and store what lies inside the bounds."""
    s = gl.maximum(s, 0.0) * w[None, :]
    total = gl.sum(gl.reshape(s, (BN, BM, H)), axis=2)
    total = gl.convert_layout(total, out_l) * scale[:, None]
    inside = (at[:, None] >= ks[None, :]) & (at[:, None] < ke[None, :])
    gl.store(out_row[None, :] + at[:, None], total, mask=inside)


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@gluon.jit(do_not_specialize=("rows", "keys"), do_not_specialize_on_alignment=("ks_ptr", "ke_ptr"))
def mqa_logits_sm90_kernel(
    q_desc,  # descriptor over [M*H, D] e4m3, box [BM*H, D]
    k_desc,  # descriptor over [N, D] e4m3, box [BN, D]
    k_scale_ptr,
    w_ptr,
    ks_ptr,
    ke_ptr,
    out_ptr,
    rows,
    keys,
    w_stride,
    out_stride,
    BM: gl.constexpr,
    BN: gl.constexpr,
    H: gl.constexpr,
    D: gl.constexpr,
    STAGES: gl.constexpr,
):
    """BM query rows against every SPLITS-th run of keys, as `mqa_logits_kernel`."""
    HALF: gl.constexpr = BN // 2
    acc_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM * H, 32])
    # where the sum over an accumulator's columns leaves its rows: stored from there, no exchange
    out_l: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[8, 0], [0, 1]],
        lane_bases=[[0, 0], [0, 0], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[HALF, BM],
    )
    m_l: gl.constexpr = gl.SliceLayout(0, out_l)
    n_l: gl.constexpr = gl.SliceLayout(1, out_l)
    c_l: gl.constexpr = gl.SliceLayout(0, acc_l)
    row0 = gl.program_id(0) * BM
    r = row0 + gl.arange(0, BM, layout=m_l)
    ok = r < rows
    ks = gl.load(ks_ptr + r, mask=ok, other=2147483647)
    ke = gl.minimum(gl.load(ke_ptr + r, mask=ok, other=0), keys)
    first = gl.maximum(gl.min(ks, axis=0), 0) // BN
    last = (gl.max(ke, axis=0) + BN - 1) // BN
    each = (gl.maximum(last - first, 0) + gl.num_programs(1) - 1) // gl.num_programs(1)
    begin = first + gl.program_id(1) * each
    end = gl.minimum(begin + each, last)
    if begin < end:
        q_s = gl.allocate_shared_memory(q_desc.dtype, [BM * H, D], q_desc.layout)
        k_s = gl.allocate_shared_memory(k_desc.dtype, [STAGES, BN, D], k_desc.layout)
        bars = gl.allocate_shared_memory(gl.int64, [STAGES + 1, 1], mbarrier.MBarrierLayout())
        for j in gl.static_range(STAGES + 1):
            mbarrier.init(bars.index(j), count=1)
        mbarrier.expect(bars.index(STAGES), BM * H * D)
        tma.async_copy_global_to_shared(q_desc, [row0 * H, 0], bars.index(STAGES), q_s)
        for j in gl.static_range(STAGES):
            _issue(k_desc, k_s, bars, begin + j, j, end, BN, D, STAGES)
        c = gl.arange(0, BM * H, layout=c_l)
        w_row = row0 + c // H
        w = gl.load(w_ptr + w_row.to(gl.int64) * w_stride + c % H, mask=w_row < rows, other=0.0)
        n = gl.arange(0, HALF, layout=n_l)
        out_row = out_ptr + r.to(gl.int64) * out_stride
        zero = gl.zeros((HALF, BM * H), gl.float32, acc_l)
        mbarrier.wait(bars.index(STAGES), 0)
        qt = q_s.permute((1, 0))
        for tile in range(begin, end):
            i = tile - begin
            at0 = tile * BN + n
            scale0 = gl.load(k_scale_ptr + at0, mask=at0 < keys, other=0.0)
            scale1 = gl.load(k_scale_ptr + at0 + HALF, mask=at0 + HALF < keys, other=0.0)
            mbarrier.wait(bars.index(i % STAGES), (i // STAGES) & 1)
            k = k_s.index(i % STAGES)
            a = warpgroup_mma(k.slice(0, HALF), qt, zero, use_acc=False, is_async=True)
            b = warpgroup_mma(k.slice(HALF, HALF), qt, zero, use_acc=False, is_async=True)
            s0 = warpgroup_mma_wait(1, deps=[a])
            _finish(s0, scale0, w, at0, ks, ke, out_row, out_l, BM, HALF, H)
            s1 = warpgroup_mma_wait(0, deps=[b])
            _issue(k_desc, k_s, bars, tile + STAGES, i, end, BN, D, STAGES)
            _finish(s1, scale1, w, at0 + HALF, ks, ke, out_row, out_l, BM, HALF, H)
        for j in gl.static_range(STAGES + 1):
            mbarrier.invalidate(bars.index(j))
