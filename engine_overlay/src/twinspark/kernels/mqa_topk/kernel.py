"""Triton kernels of the indexer's prefill logits with their top-k: [M, N] is never written.

Exact: a row's threshold is always one that `topk` of the keys seen so far reach, so a key at or
below it is not needed. Order is that of float32 as a signed integer: NaN above infinity (below
minus infinity with its sign set), as vLLM's own top-k has it. Of equal logits the first keys win.
"""
# ruff: noqa: ANN001, ANN201, ANN202, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

HEADS = 64
HEAD_DIM = 128
LOWEST = tl.constexpr(-(2**31))  # image below every logit's
HIGHEST = tl.constexpr(2**31 - 2)  # largest image: one more must still be an int32


@triton.jit
def _image(bits):
    """Float32 bits to an int32 of the same order, and back (but for one NaN)."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _middle(low, high):
    """The mean rounded down, without overflow."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit
def _unpack(packed, there):
    """Images of packed candidates; LOWEST where there is none."""
    x = tl.minimum(_image((packed >> 32).to(tl.int32)), HIGHEST)
    return tl.where(there, x, LOWEST)


@triton.jit
def _bound(x, count, low, LEAST: tl.constexpr, MOST: tl.constexpr):
    """Bisect for a bound that LEAST to MOST images reach; `count` reach `low`.

    Where equal images leave no such bound it ends at the largest that LEAST reach. At most 32
    rounds.

    Returns:
        The bound and how many images reach it.
    """
    high = tl.max(x, axis=0) + 1
    middle = _middle(low, high)
    while (count > MOST) & (middle > low):
        reach = tl.sum((x >= middle).to(tl.int32), axis=0)
        enough = reach >= LEAST
        low = tl.where(enough, middle, low)
        count = tl.where(enough, reach, count)
        high = tl.where(enough, high, middle)
        middle = _middle(low, high)
    return low, count


@triton.jit
def _room(x, low, reach, LEAST: tl.constexpr, MOST: tl.constexpr):
    """How many candidates on the bound to keep, and how many candidates that makes.

    All of them, or where more than MOST reach the bound as many as LEAST leaves.
    """
    above = tl.sum((x > low).to(tl.int32), axis=0)
    left = tl.where(reach > MOST, LEAST, reach)
    return left - above, left


@triton.jit
def _rank(flags):
    """Number the ones of [G, W], from 1 on: column after column, most of it in a thread's own."""
    column = tl.sum(flags, axis=0)
    return tl.cumsum(flags, axis=0) + (tl.cumsum(column, axis=0) - column)[None, :]


@triton.jit
def _compact(
    at,
    count,
    low,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    CAPACITY: tl.constexpr,
    PIECE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Shrink one row's candidates in place.

    Returns:
        How many are left, and the bound that all of them reach.
    """
    n = tl.arange(0, CAPACITY)
    x = _unpack(tl.load(at + n, mask=n < count, other=0), n < count)
    low, reach = _bound(x, count, low, LEAST, MOST)
    room, left = _room(x, low, reach, LEAST, MOST)
    n = tl.arange(0, PIECE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    done = count * 0
    for begin in range(0, count, PIECE):
        there = begin + n < count
        packed = tl.load(at + begin + n, mask=there, other=0)
        y = _unpack(packed, there)
        on = (there & (y == low)).to(tl.int32)
        keep = ((there & (y > low)) | ((on != 0) & (_rank(on) <= room))).to(tl.int32)
        to = tl.max_contiguous(done + _rank(keep) - 1, [1, LANES])
        tl.debug_barrier()  # every thread has loaded before one stores; a store goes never ahead
        tl.store(at + to, packed, mask=keep != 0)
        done += tl.sum(tl.sum(keep, axis=0), axis=0)
        room -= tl.sum(tl.sum(on, axis=0), axis=0)
    return left, low


@triton.jit
def _shrink(
    found,
    stride,
    count,
    low,
    limit,
    BM: tl.constexpr,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    CAPACITY: tl.constexpr,
    PIECE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Compact the rows that have more than `limit` candidates; counts and bounds of all rows."""
    m = tl.arange(0, BM)
    for i in range(BM):
        mine = tl.sum(tl.where(m == i, count, 0), axis=0)
        if mine > limit:
            bound = tl.sum(tl.where(m == i, low, 0), axis=0)
            at = found + i * stride
            left, bound = _compact(at, mine, bound, LEAST, MOST, CAPACITY, PIECE, LANES)
            count = tl.where(m == i, left, count)
            low = tl.where(m == i, bound, low)
    return count, low


@triton.jit
def _append(
    found,
    stride,
    count,
    scratch,
    key0,
    lower,
    upper,
    low,
    BM: tl.constexpr,
    RUN: tl.constexpr,
    PART: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Append what is above its row's bound among PART logits of each row.

    The tensors are [BM, PART / WIDTH, WIDTH], for which Triton gives each row warps of its own and
    each thread a column: counting needs no barrier where WIDTH is a warp's. The order within a
    part is that of the columns. What `max_contiguous` says is not so: it orders the dimensions,
    for the store as for the load. It can widen no access, as no address is known to be aligned.

    Returns:
        How many candidates each row has now.
    """
    m = tl.arange(0, BM)[:, None, None]
    x = tl.arange(0, PART // WIDTH)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    v = tl.load(scratch + tl.max_contiguous(m * RUN + x, [BM, 1, WIDTH]))
    key = key0 + x
    inside = (key >= lower[:, None, None]) & (key < upper[:, None, None])
    # in floats, so that NaN is not below: a candidate too many does no harm
    skip = v <= _image(low).to(tl.float32, bitcast=True)[:, None, None]
    take = (inside & ~skip).to(tl.int32)
    column = tl.sum(take, axis=1)
    before = count[:, None] + tl.cumsum(column, axis=1) - column
    to = tl.cumsum(take, axis=1) - 1 + (before + tl.arange(0, BM)[:, None] * stride)[:, None, :]
    packed = (v.to(tl.int32, bitcast=True).to(tl.int64) << 32) | key.to(tl.uint32).to(tl.int64)
    tl.store(found + tl.max_contiguous(to, [BM, 1, WIDTH]), packed, mask=take != 0)
    return count + tl.sum(column, axis=1)


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup; scratch
# and candidates without their alignment, so that a thread's elements lie a row of threads apart
@triton.jit(
    do_not_specialize=("rows", "keys"),
    do_not_specialize_on_alignment=("ks_ptr", "ke_ptr", "scratch_ptr", "found_ptr"),
)
def mqa_topk_collect_kernel(  # noqa: PLR0915 - what is left in it is one loop and its state
    q_src,  # TMA: descriptor over [M*H, D], box [BM*H, D]; else pointer to [M, H, D] e4m3
    k_src,  # TMA: descriptor over [N, D], box [BN, D]; else pointer to [N, D] e4m3
    k_scale_ptr,  # [N] f32
    w_ptr,  # [M, H] f32
    ks_ptr,  # [M] i32, first key of the row
    ke_ptr,  # [M] i32, one past its last key
    scratch_ptr,  # [programs, BM, RUN] f32: one run's logits, reused while they are in the L2
    found_ptr,  # [M, SPLITS, CAPACITY] i64: float32 bits << 32 | key
    counts_ptr,  # [M, SPLITS] i32
    rows,
    keys,
    q_stride_m,
    q_stride_h,
    k_stride,
    w_stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    RUN: tl.constexpr,  # keys between two looks at the logits
    CAPACITY: tl.constexpr,  # candidates of a row and split; RUN + MOST at least
    LEAST: tl.constexpr,  # the k of top-k
    MOST: tl.constexpr,  # candidates a compaction may leave
    FINAL: tl.constexpr,  # candidates a split may hand over; MOST at least
    PART: tl.constexpr,  # logits of a row, of its run, that are looked at at once
    WIDTH: tl.constexpr,  # threads that share a row of them
    PIECE: tl.constexpr,  # candidates that are moved at once
    LANES: tl.constexpr,  # threads
    H: tl.constexpr,
    D: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,  # None: only what feeds the product is pipelined, at the launch's depth
):
    """Candidates of BM query rows among one split of the keys: a superset of the split's top-k.

    The products are `mqa_logits_kernel`'s. After each run of keys their logits are read back, what
    is above the row's threshold is appended to its candidates, and where the next run might not fit
    the candidates are compacted, which raises the threshold.
    """
    row0 = tl.program_id(0) * BM
    m = tl.arange(0, BM)
    r = row0 + m
    row_ok = r < rows
    ks = tl.load(ks_ptr + r, mask=row_ok, other=2147483647)
    ke = tl.minimum(tl.load(ke_ptr + r, mask=row_ok, other=0), keys)
    first = tl.maximum(tl.min(ks, axis=0), 0) // BN
    last = (tl.max(ke, axis=0) + BN - 1) // BN
    splits = tl.num_programs(1)
    each = (tl.maximum(last - first, 0) + splits - 1) // splits
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
    program = tl.program_id(0).to(tl.int64) * splits + tl.program_id(1)
    scratch = scratch_ptr + program * (BM * RUN)
    slot = r.to(tl.int64) * splits + tl.program_id(1)
    count = tl.zeros((BM,), tl.int32)
    low = tl.full((BM,), LOWEST, tl.int32)
    for run in range(begin, end, RUN // BN):
        stop = tl.minimum(run + RUN // BN, end)
        for tile in tl.range(run, stop, num_stages=STAGES):
            at = tile * BN + n
            if TMA:
                k = k_src.load([tile * BN, 0])
            else:
                k_at = at.to(tl.int64) * k_stride
                ok = (at < keys)[:, None]
                k = tl.load(k_src + k_at[:, None] + d[None, :], mask=ok, other=0.0)
            scale = tl.load(k_scale_ptr + at, mask=at < keys, other=0.0)
            s = tl.dot(k, tl.trans(q))
            s = tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL) * w[None, :]
            logits = tl.sum(tl.reshape(s, (BN, BM, H)), axis=2) * scale[:, None]
            tl.store(scratch + (tile - run) * BN + m[None, :] * RUN + n[:, None], logits)
        tl.debug_barrier()  # the run's logits are there
        # the bounds once more and all addresses here: kept, they would cost the product registers
        lower = tl.load(ks_ptr + r, mask=row_ok, other=2147483647)
        upper = tl.load(ke_ptr + r, mask=row_ok, other=0)
        upper = tl.minimum(tl.minimum(upper, keys), stop * BN)
        found = found_ptr + (row0.to(tl.int64) * splits + tl.program_id(1)) * CAPACITY
        stride = splits * CAPACITY
        for part in range(0, (stop - run) * BN, PART):
            piece = scratch + part
            key = run * BN + part
            count = _append(
                found, stride, count, piece, key, lower, upper, low, BM, RUN, PART, WIDTH
            )
        limit = tl.where(stop == end, FINAL, CAPACITY - RUN)
        tl.debug_barrier()  # the candidates are there; nobody reads this run any more
        if tl.max(count, axis=0) > limit:
            count, low = _shrink(
                found, stride, count, low, limit, BM, LEAST, MOST, CAPACITY, PIECE, LANES
            )
    tl.store(counts_ptr + slot, count, mask=row_ok)


@triton.jit(do_not_specialize=("keys",), do_not_specialize_on_alignment=("ks_ptr", "ke_ptr"))
def mqa_topk_merge_kernel(
    found_ptr,  # [M, SPLITS, CAPACITY] i64
    counts_ptr,  # [M, SPLITS] i32, FINAL at most
    ks_ptr,  # [M] i32
    ke_ptr,  # [M] i32
    out_ptr,  # [M, LEAST] i32
    keys,
    out_stride,
    SPLITS: tl.constexpr,
    SPLITS_POW2: tl.constexpr,
    CAPACITY: tl.constexpr,
    FINAL: tl.constexpr,
    LEAST: tl.constexpr,
    LEAST_POW2: tl.constexpr,
    LANES: tl.constexpr,
):
    """One row's top-k of its splits' candidates; all its keys and then -1 where it has no more."""
    row = tl.program_id(0).to(tl.int64)
    ks = tl.load(ks_ptr + row)
    length = tl.minimum(tl.load(ke_ptr + row), keys) - ks
    out = out_ptr + row * out_stride
    o = tl.arange(0, LEAST_POW2)
    if length <= LEAST:
        tl.store(out + o, tl.where(o < length, o, -1), mask=o < LEAST)
    else:
        g = tl.arange(0, SPLITS_POW2 * FINAL // LANES)[:, None]
        n = g * LANES + tl.arange(0, LANES)[None, :]
        split, at = n // FINAL, n % FINAL
        counts = tl.load(counts_ptr + row * SPLITS + split, mask=split < SPLITS, other=0)
        there = at < counts
        packed = tl.load(found_ptr + (row * SPLITS + split) * CAPACITY + at, mask=there, other=0)
        x = _unpack(packed, there)
        flat = tl.reshape(x, (SPLITS_POW2 * FINAL,), can_reorder=True)
        count = tl.sum(tl.sum(there.to(tl.int32), axis=0), axis=0)
        low, reach = _bound(flat, count, tl.full((), LOWEST, tl.int32), LEAST, LEAST)
        room, _ = _room(flat, low, reach, LEAST, LEAST)
        on = (there & (x == low)).to(tl.int32)
        keep = ((there & (x > low)) | ((on != 0) & (_rank(on) <= room))).to(tl.int32)
        key = (packed & 0xFFFFFFFF).to(tl.int32) - ks
        tl.store(out + _rank(keep) - 1, key, mask=keep != 0)
