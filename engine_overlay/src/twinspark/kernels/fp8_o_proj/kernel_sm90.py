"""Gluon form of the grouped projection for many tokens, for sm_90 alone: warps with roles.

Each 128 of depth has its own scale, so every product is added to the sum by ordinary instructions,
and Triton's loop waits for one before it starts the next. Here one warp copies and two warpgroups
multiply without waiting for each other, so that one's sum runs while the other's product does.
Programs are persistent: the copies of the next tile are under way while this one is stored.
"""
# ruff: noqa: ANN001, ANN201, ANN202, N803, N806, PLR0913, PLR0917 - Gluon's, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _place(tile, tokens, ranks, BM: gl.constexpr, BN: gl.constexpr):
    """Group, first token and first rank of a tile: neighbours share their tokens."""
    across = ranks // BN
    down = (tokens + BM - 1) // BM
    return tile // (across * down), tile // across % down * BM, tile % across * BN


@gluon.jit
def _copy(
    given, shared, strides,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The copying warp: every step of every tile into the next stage that both have left."""
    x_desc, w_desc, x_scale_ptr, tokens, ranks, depth, tiles = given
    x_s, w_s, scale_s, full, empty = shared
    stride_t, stride_g, stride_k = strides
    t_in = gl.arange(0, BM, layout=gl.BlockedLayout([1], [32], [1], [0]))
    index = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        g, t0, r0 = _place(tile, tokens, ranks, BM, BN)
        t = (t0 + t_in).to(gl.int64)
        scales = x_scale_ptr + g.to(gl.int64) * stride_g + t * stride_t
        for at in range(0, depth, BK):
            stage = index % STAGES
            # a barrier that has not been used counts as having completed the phase before its first
            mbarrier.wait(empty.index(stage), (index // STAGES & 1) ^ 1)
            bar = full.index(stage)
            async_copy.async_copy_global_to_shared(scale_s.index(stage), scales, mask=t < tokens)
            async_copy.mbarrier_arrive(bar, increment_count=False)
            scales += stride_k
            mbarrier.expect(bar, (BM + BN) * BK)
            tma.async_copy_global_to_shared(x_desc, [g * tokens + t0, at], bar, x_s.index(stage))
            tma.async_copy_global_to_shared(w_desc, [g * ranks + r0, at], bar, w_s.index(stage))
            index += 1


@gluon.jit
def _multiply(
    given, shared, strides,
    HALF: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """A multiplying warpgroup: its half of the tokens of every tile."""
    w_scale_ptr, out_ptr, tokens, ranks, depth, tiles = given
    x_s, w_s, scale_s, full, empty = shared
    ws_stride_g, ws_stride_r, ws_stride_k, out_stride_t, out_stride_g = strides
    ROWS: gl.constexpr = BM // 2
    acc_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 32])
    t_in = HALF * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, acc_l))
    r_in = gl.arange(0, BN, layout=gl.SliceLayout(0, acc_l))
    zero = gl.zeros((ROWS, BN), gl.float32, acc_l)
    index = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        g, t0, r0 = _place(tile, tokens, ranks, BM, BN)
        t = t0 + t_in
        ok = t < tokens
        group = g.to(gl.int64)
        ws_at = w_scale_ptr + group * ws_stride_g + (r0 // 128).to(gl.int64) * ws_stride_r
        total = gl.zeros((ROWS, BN), gl.float32, acc_l)
        for _ in range(0, depth, BK):
            stage = index % STAGES
            ws = gl.load(ws_at)
            mbarrier.wait(full.index(stage), index // STAGES & 1)
            x, w = x_s.index(stage).slice(HALF * ROWS, ROWS), w_s.index(stage).permute((1, 0))
            flying = warpgroup_mma(x, w, zero, use_acc=False, is_async=True)
            xs = scale_s.index(stage).slice(HALF * ROWS, ROWS).load(gl.SliceLayout(1, acc_l))
            product = warpgroup_mma_wait(0, deps=[flying])
            mbarrier.arrive(empty.index(stage), count=1)
            total += product * (xs * ws)[:, None]
            ws_at += ws_stride_k
            index += 1
        row = out_ptr + group * out_stride_g + t.to(gl.int64) * out_stride_t
        gl.store(row[:, None] + (r0 + r_in)[None, :], total.to(gl.bfloat16), mask=ok[:, None])


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@gluon.jit(do_not_specialize=("tokens", "tiles", "xs_stride_g", "xs_stride_k"))
def fp8_o_proj_sm90_kernel(
    x_desc,  # descriptor over [G*T, K] e4m3, box [BM, BK]
    w_desc,  # descriptor over [G*R, K] e4m3, box [BN, BK]
    x_scale_ptr,
    w_scale_ptr,
    out_ptr,
    tokens,
    ranks,
    depth,
    tiles,
    xs_stride_t,
    xs_stride_g,
    xs_stride_k,
    ws_stride_g,
    ws_stride_r,
    ws_stride_k,
    out_stride_t,
    out_stride_g,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Tiles of [BM tokens, BN ranks] of a group, one after another, as `fp8_o_proj_kernel`."""
    x_s = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BM, BK], x_desc.layout)
    w_s = gl.allocate_shared_memory(w_desc.dtype, [STAGES, BN, BK], w_desc.layout)
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    scale_s = gl.allocate_shared_memory(gl.float32, [STAGES, BM], flat)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=33)  # the copied tiles; scales, of each lane
        mbarrier.init(empty.index(stage), count=2)  # both warpgroups
    shared = x_s, w_s, scale_s, full, empty
    copy = x_desc, w_desc, x_scale_ptr, tokens, ranks, depth, tiles
    x_strides = xs_stride_t, xs_stride_g, xs_stride_k
    math = w_scale_ptr, out_ptr, tokens, ranks, depth, tiles
    strides = ws_stride_g, ws_stride_r, ws_stride_k, out_stride_t, out_stride_g
    LOWER: gl.constexpr = 0
    UPPER: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiply, (math, shared, strides, LOWER, BM, BN, BK, STAGES)),
            (_multiply, (math, shared, strides, UPPER, BM, BN, BK, STAGES)),
            (_copy, (copy, shared, x_strides, BM, BN, BK, STAGES)),
        ],
        [4, 1],
        [208, 24],
    )
