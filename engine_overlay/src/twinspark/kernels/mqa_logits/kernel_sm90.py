"""Gluon form of the prefill logits for sm_90 with one producer warp and four free warpgroups.

A producer copies keys into a ring of shared memory; four warpgroups multiply 64 of them at a time
with the columns of two query rows, each at its own pace, so that one's sum over heads runs while
another's product does. PAIRS pairs of rows share a stage: warpgroup g takes pair g % PAIRS and the
stage's keys from 64 * (g // PAIRS). Programs stay and go from item to item (a block of rows and a
share of its keys), and the producer runs ahead over the edge between two items.

Barriers, all with a parity that is that of the count of earlier uses of the stage (u):
    full[s]    1 arrival and the bytes of a stage; a warpgroup waits for its phase u: parity u & 1.
    empty[s]   4 arrivals, one a warpgroup; the producer's use u waits for phase u - 1: parity
               (u & 1) ^ 1, which a fresh barrier passes.
    q_full[s], q_empty[s]   the same for an item's queries, weights and bounds, two stages; q_full
               has 2 arrivals: one after the plain stores, one that expects the copied bytes.
Every partition walks the same items and takes the same steps from the same bounds, so that their
counts agree; an item without keys still passes through q_full and q_empty.
"""
# ruff: noqa: ANN001, ANN201, ANN202, N803, N806, PLR0913, PLR0917 - Gluon's, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ALL_NAN = gl.constexpr(tl.PropagateNan.ALL)
KEYS = gl.constexpr(64)  # of one product: what a warpgroup's instruction covers
Q_STAGES = gl.constexpr(2)


# The sum over an accumulator's columns leaves the logits of key and key + 8 of both rows in each of
# the four lanes that held parts of them: of these, lane l keeps and stores the l-th.
# Axes: 16 keys, half of them, key in a half, row, lane.
ALL_L = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]],
        lane_bases=[
            [0, 0, 0, 0, 1],
            [0, 0, 0, 0, 2],
            [0, 0, 1, 0, 0],
            [0, 0, 2, 0, 0],
            [0, 0, 4, 0, 0],
        ],
        warp_bases=[[1, 0, 0, 0, 0], [2, 0, 0, 0, 0]],
        block_bases=[],
        shape=[4, 2, 8, 2, 4],
    )
)
ONE_L = gl.constexpr(gl.SliceLayout(1, gl.SliceLayout(3, ALL_L.value)))
LANE_L = gl.constexpr(gl.SliceLayout(0, gl.SliceLayout(1, ONE_L.value)))


@gluon.jit
def own_keys():
    """[4, 8, 4]: the key of a product that a lane stores; its row is lane // 2 of the four."""
    tens = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, ONE_L)))
    ones = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, ONE_L)))
    lane = gl.arange(0, 4, layout=LANE_L)
    return 16 * tens[:, None, None] + ones[None, :, None] + 8 * (lane % 2)[None, None, :]


@gluon.jit
def sum_heads(s, w, H: gl.constexpr):
    """[4, 8, 4]: weighted sums of a product's positive part, each in the lane that stores it."""
    s = gl.maximum(s, 0.0, propagate_nan=ALL_NAN) * w[None, :]
    total = gl.sum(gl.reshape(s, (4, 2, 8, 2, H)), axis=4)
    total = gl.convert_layout(total, gl.SliceLayout(4, ALL_L))
    half_l: gl.constexpr = gl.SliceLayout(
        0, gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, ALL_L)))
    )
    row_l: gl.constexpr = gl.SliceLayout(
        0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(4, ALL_L)))
    )
    any_l: gl.constexpr = gl.SliceLayout(
        0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, ALL_L)))
    )
    half = gl.arange(0, 2, layout=half_l)[None, :, None, None, None]
    row = gl.arange(0, 2, layout=row_l)[None, None, None, :, None]
    kept = half + 2 * row == gl.arange(0, 4, layout=any_l)[None, None, None, None, :]
    return gl.sum(gl.sum(gl.where(kept, total[:, :, :, :, None], 0.0), axis=3), axis=1)


@gluon.jit
def _next(stage, phase, STAGES: gl.constexpr):
    """The stage after this one, and the parity of its use."""
    stage += 1
    wrapped = stage == STAGES
    return gl.where(wrapped, 0, stage), gl.where(wrapped, phase ^ 1, phase)


@gluon.jit
def _steps(first_key, last_key, part, parts, BN: gl.constexpr):
    """The tiles of a share of the keys that some row of a block sees."""
    first = gl.maximum(first_key, 0) // BN
    last = (last_key + BN - 1) // BN
    each = (gl.maximum(last - first, 0) + parts - 1) // parts
    begin = first + part * each
    return begin, gl.minimum(begin + each, last)


@gluon.jit
def _produce(
    given, shared,
    PAIRS: gl.constexpr, BN: gl.constexpr, H: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy every item's queries, weights and bounds, then its keys, as stages come free."""
    q_desc, k_desc, w_ptr, ks_ptr, ke_ptr, rows, keys, w_stride, blocks, parts = given
    q_s, k_s, w_s, bound_s, full, empty, q_full, q_empty = shared
    row_l: gl.constexpr = gl.BlockedLayout([4], [32], [1], [0])
    col_l: gl.constexpr = gl.BlockedLayout([4], [32], [1], [0])
    stage = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    q_stage = gl.to_tensor(0)
    q_phase = gl.to_tensor(0)
    lane_row = gl.arange(0, 4, layout=row_l) // 2  # a warpgroup's four lanes store two rows
    c = gl.arange(0, 2 * H, layout=col_l)
    for item in range(gl.program_id(0), blocks * parts, gl.num_programs(0)):
        row0 = (item % blocks) * (2 * PAIRS)
        first_key = gl.to_tensor(2147483647)
        last_key = gl.to_tensor(0)
        mbarrier.wait(q_empty.index(q_stage), q_phase ^ 1)
        for pair in gl.static_range(PAIRS):
            r = row0 + 2 * pair + lane_row
            ks = gl.load(ks_ptr + r, mask=r < rows, other=2147483647)
            ke = gl.minimum(gl.load(ke_ptr + r, mask=r < rows, other=0), keys)
            first_key = gl.minimum(first_key, gl.min(ks, axis=0))
            last_key = gl.maximum(last_key, gl.max(ke, axis=0))
            at = q_stage * PAIRS + pair
            bound_s.index(2 * at).store(ks)
            bound_s.index(2 * at + 1).store(ke)
            w_row = row0 + 2 * pair + c // H
            w = gl.load(w_ptr + w_row.to(gl.int64) * w_stride + c % H, mask=w_row < rows, other=0.0)
            w_s.index(at).store(w)
        mbarrier.arrive(q_full.index(q_stage), count=1)
        mbarrier.expect(q_full.index(q_stage), 2 * PAIRS * H * D)
        tma.async_copy_global_to_shared(
            q_desc, [row0 * H, 0], q_full.index(q_stage), q_s.index(q_stage)
        )
        q_stage, q_phase = _next(q_stage, q_phase, Q_STAGES)
        begin, end = _steps(first_key, last_key, item // blocks, parts, BN)
        for tile in range(begin, end):
            mbarrier.wait(empty.index(stage), phase ^ 1)
            mbarrier.expect(full.index(stage), BN * D)
            tma.async_copy_global_to_shared(
                k_desc, [tile * BN, 0], full.index(stage), k_s.index(stage)
            )
            stage, phase = _next(stage, phase, STAGES)


@gluon.jit
def _multiply(
    given, shared,
    GROUP: gl.constexpr, PAIRS: gl.constexpr, BN: gl.constexpr, H: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """One warpgroup's share of every stage: product, sum over heads, store."""
    k_scale_ptr, out_ptr, keys, out_stride, blocks, parts = given
    q_s, k_s, w_s, bound_s, full, empty, q_full, q_empty = shared
    PAIR: gl.constexpr = GROUP % PAIRS
    KEY0: gl.constexpr = KEYS * (GROUP // PAIRS)
    acc_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * H, 32])
    same_l: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    lane = gl.arange(0, 4, layout=LANE_L)
    n = KEY0 + own_keys()
    stage = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    q_stage = gl.to_tensor(0)
    q_phase = gl.to_tensor(0)
    zero = gl.zeros((KEYS, 2 * H), gl.float32, acc_l)
    for item in range(gl.program_id(0), blocks * parts, gl.num_programs(0)):
        first_key = gl.to_tensor(2147483647)
        last_key = gl.to_tensor(0)
        mbarrier.wait(q_full.index(q_stage), q_phase)
        for pair in gl.static_range(PAIRS):
            at = q_stage * PAIRS + pair
            first_key = gl.minimum(first_key, gl.min(bound_s.index(2 * at).load(same_l), axis=0))
            last_key = gl.maximum(last_key, gl.max(bound_s.index(2 * at + 1).load(same_l), axis=0))
        mine = q_stage * PAIRS + PAIR
        ks = bound_s.index(2 * mine).load(LANE_L)[None, None, :]
        ke = bound_s.index(2 * mine + 1).load(LANE_L)[None, None, :]
        w = w_s.index(mine).load(gl.SliceLayout(0, acc_l))
        begin, end = _steps(first_key, last_key, item // blocks, parts, BN)
        r = (item % blocks) * (2 * PAIRS) + 2 * PAIR + lane // 2
        out_row = (out_ptr + r.to(gl.int64) * out_stride)[None, None, :]
        qt = q_s.index(q_stage).slice(PAIR * 2 * H, 2 * H).permute((1, 0))
        key = begin * BN + n
        left = end - begin
        while left > 0:
            scale = gl.load(k_scale_ptr + key, mask=key < keys, other=0.0)
            mbarrier.wait(full.index(stage), phase)
            k = k_s.index(stage).slice(KEY0, KEYS)
            s = warpgroup_mma(k, qt, zero, use_acc=False, is_async=True)
            s = warpgroup_mma_wait(0, deps=[s])
            mbarrier.arrive(empty.index(stage), count=1)
            total = sum_heads(s, w, H) * scale
            gl.store(out_row + key, total, mask=(key >= ks) & (key < ke))
            stage, phase = _next(stage, phase, STAGES)
            key += BN
            left -= 1
        mbarrier.arrive(q_empty.index(q_stage), count=1)
        q_stage, q_phase = _next(q_stage, q_phase, Q_STAGES)


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@gluon.jit(
    do_not_specialize=("rows", "keys", "blocks", "parts"),
    do_not_specialize_on_alignment=("ks_ptr", "ke_ptr"),
)
def mqa_logits_sm90_kernel(
    q_desc,  # descriptor over [M*H, D] e4m3, box [2*PAIRS*H, D]
    k_desc,  # descriptor over [N, D] e4m3, box [BN, D], BN = 64 * (4 // PAIRS)
    k_scale_ptr,
    w_ptr,
    ks_ptr,
    ke_ptr,
    out_ptr,
    rows,
    keys,
    w_stride,
    out_stride,
    blocks,  # of 2 * PAIRS rows
    parts,  # shares of a block's keys
    PAIRS: gl.constexpr,
    BN: gl.constexpr,
    H: gl.constexpr,
    D: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Every num_programs(0)-th item of blocks * parts; arguments as `mqa_logits_kernel`."""
    w_l: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    q_s = gl.allocate_shared_memory(q_desc.dtype, [Q_STAGES, 2 * PAIRS * H, D], q_desc.layout)
    k_s = gl.allocate_shared_memory(k_desc.dtype, [STAGES, BN, D], k_desc.layout)
    w_s = gl.allocate_shared_memory(gl.float32, [Q_STAGES * PAIRS, 2 * H], w_l)
    bound_s = gl.allocate_shared_memory(gl.int32, [2 * Q_STAGES * PAIRS, 4], w_l)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar_l)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar_l)
    q_full = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], bar_l)
    q_empty = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], bar_l)
    for j in gl.static_range(STAGES):
        mbarrier.init(full.index(j), count=1)
        mbarrier.init(empty.index(j), count=4)
    for j in gl.static_range(Q_STAGES):
        mbarrier.init(q_full.index(j), count=2)
        mbarrier.init(q_empty.index(j), count=4)
    shared = q_s, k_s, w_s, bound_s, full, empty, q_full, q_empty
    math = k_scale_ptr, out_ptr, keys, out_stride, blocks, parts
    copy = q_desc, k_desc, w_ptr, ks_ptr, ke_ptr, rows, keys, w_stride, blocks, parts
    gl.warp_specialize(
        [
            (_multiply, (math, shared, gl.constexpr(0), PAIRS, BN, H, STAGES)),
            (_multiply, (math, shared, gl.constexpr(1), PAIRS, BN, H, STAGES)),
            (_multiply, (math, shared, gl.constexpr(2), PAIRS, BN, H, STAGES)),
            (_multiply, (math, shared, gl.constexpr(3), PAIRS, BN, H, STAGES)),
            (_produce, (copy, shared, PAIRS, BN, H, D, STAGES)),
        ],
        [4, 4, 4, 1],
        [112, 112, 112, 32],  # registers a thread; 112 are left for the first warpgroup too
    )
    for j in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(j))
        mbarrier.invalidate(empty.index(j))
    for j in gl.static_range(Q_STAGES):
        mbarrier.invalidate(q_full.index(j))
        mbarrier.invalidate(q_empty.index(j))
