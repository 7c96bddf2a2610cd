"""Triton kernel of the indexer's decode logits over the paged key cache."""
# ruff: noqa: ANN001, ANN201, ANN202, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl

HEADS = 64
HEAD_DIM = 128
PAGE = 64


@triton.jit
def _rows(
    q_ptr,
    pages_src,
    cache_ptr,
    w_ptr,
    lens_ptr,
    table_ptr,
    out_ptr,
    rows,
    keys,
    next_n,
    q_stride,
    page_stride,
    w_stride,
    table_stride,
    out_stride,
    row0,
    begin,
    end,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PAGE_: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Tiles [begin, end) of BN keys for rows [row0, row0 + BM), all through row0's block table."""
    r = row0 + tl.arange(0, BM)
    lens = tl.minimum(tl.load(lens_ptr + r, mask=r < rows, other=0), keys)
    longest = tl.max(lens, axis=0)
    c = tl.arange(0, BM * H)
    d = tl.arange(0, D)
    c_row = (row0 + c // H).to(tl.int64)
    c_ok = row0 + c // H < rows
    q_at = (c_row * q_stride)[:, None] + ((c % H) * D)[:, None] + d[None, :]
    q = tl.load(q_ptr + q_at, mask=c_ok[:, None], other=0.0)
    w = tl.load(w_ptr + c_row * w_stride + c % H, mask=c_ok, other=0.0)
    table = table_ptr + (row0 // next_n).to(tl.int64) * table_stride
    out_row = out_ptr + r.to(tl.int64) * out_stride
    n = tl.arange(0, BN)
    following = tl.load(table + begin, mask=begin < end, other=0)
    for tile in tl.range(begin, end, num_stages=STAGES):
        at = tile * BN + n
        ok = at < longest
        if TMA:  # one page a tile: its id is read a step ahead, so that no copy waits for it
            page_id = following
            following = tl.load(table + tile + 1, mask=tile + 1 < end, other=0)
            k = tl.reshape(pages_src.load([page_id, 0, 0]), (BN, D))
            page = page_id.to(tl.int64) * page_stride
        else:
            page = tl.load(table + at // PAGE_, mask=ok, other=0).to(tl.int64) * page_stride
            k_at = page + (at % PAGE_) * D
            values = (cache_ptr + k_at[:, None] + d[None, :]).to(tl.pointer_type(tl.float8e4nv))
            k = tl.load(values, mask=ok[:, None], other=0.0)
        # the page holds all its values first, then all its scales
        s_at = page + PAGE_ * D + (at % PAGE_) * 4
        scale = tl.load((cache_ptr + s_at).to(tl.pointer_type(tl.float32)), mask=ok, other=0.0)
        s = tl.dot(k, tl.trans(q))
        s = tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL) * w[None, :]
        logits = tl.sum(tl.reshape(s, (BN, BM, H)), axis=2) * scale[:, None]
        tl.store(out_row[None, :] + at[:, None], logits, mask=at[:, None] < lens[None, :])


# what differs from step to step makes no kernel of its own: see twinspark.kernels.warmup
@triton.jit(
    do_not_specialize=("rows", "keys", "table_stride"),
    do_not_specialize_on_alignment=("lens_ptr", "table_ptr"),
)
def paged_mqa_logits_kernel(
    q_ptr,  # [R, H, D] e4m3, R = batch * next_n rows
    pages_src,  # TMA: descriptor over [blocks, PAGE, D] e4m3, box [1, PAGE, D]; else unused
    cache_ptr,  # bytes: pages of PAGE*D e4m3 values, then PAGE f32 scales, page_stride bytes apart
    w_ptr,  # [R, H] f32
    lens_ptr,  # [R] i32, keys of each row, of which at most `keys` count
    table_ptr,  # [batch, pages] i32
    out_ptr,  # [R, max_keys] f32
    rows,
    keys,
    next_n,
    q_stride,
    page_stride,
    w_stride,
    table_stride,
    out_stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    GROUPS: tl.constexpr,  # groups of BM rows, rounded up to a power of two
    PAGE_: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,
):
    """An equal share of all tiles of all rows, however unequal the rows.

    Each program reads every length, so no schedule has to be made beforehand. BM adjacent rows
    share each tile's keys where their block tables agree, which it finds out by reading them.
    """
    group = tl.arange(0, GROUPS)
    longest = tl.zeros((GROUPS,), dtype=tl.int32)
    for h in tl.static_range(BM):
        r = group * BM + h
        longest = tl.maximum(longest, tl.load(lens_ptr + r, mask=r < rows, other=0))
    longest = tl.minimum(longest, keys)
    tiles = (longest + BN - 1) // BN
    ends = tl.cumsum(tiles, axis=0)
    total = tl.sum(tiles, axis=0)
    each = (total + tl.num_programs(0) - 1) // tl.num_programs(0)
    start = tl.program_id(0) * each
    stop = tl.minimum(start + each, total)
    g = tl.sum((ends <= start).to(tl.int32), axis=0)
    while start < stop:
        last = tl.sum(tl.where(group == g, ends, 0), axis=0)
        base = last - tl.sum(tl.where(group == g, tiles, 0), axis=0)
        begin = start - base
        end = tl.minimum(stop, last) - base
        row0 = g * BM
        if BM == 1:
            _rows(
                q_ptr, pages_src, cache_ptr, w_ptr, lens_ptr, table_ptr, out_ptr, rows, keys,
                next_n, q_stride, page_stride, w_stride, table_stride, out_stride,
                row0, begin, end, 1, BN, PAGE_, H, D, TMA, STAGES,
            )  # fmt: skip
        else:
            first = begin * BN // PAGE_
            pages = (tl.sum(tl.where(group == g, longest, 0), axis=0) + PAGE_ - 1) // PAGE_
            pages = tl.minimum(pages, (end * BN + PAGE_ - 1) // PAGE_)
            differ = tl.sum(group * 0, axis=0)
            p = tl.arange(0, 128)
            mine = table_ptr + (row0 // next_n).to(tl.int64) * table_stride
            for i in tl.static_range(1, BM):
                # a row past the end has no table of its own: compare the last row instead
                other = tl.minimum(row0 + i, rows - 1) // next_n
                theirs = table_ptr + other.to(tl.int64) * table_stride
                for at in tl.range(first, pages, 128):
                    ok = at + p < pages
                    a = tl.load(mine + at + p, mask=ok, other=0)
                    b = tl.load(theirs + at + p, mask=ok, other=0)
                    differ += tl.sum((a != b).to(tl.int32), axis=0)
            if differ == 0:
                _rows(
                    q_ptr, pages_src, cache_ptr, w_ptr, lens_ptr, table_ptr, out_ptr, rows, keys,
                    next_n, q_stride, page_stride, w_stride, table_stride, out_stride,
                    row0, begin, end, BM, BN, PAGE_, H, D, TMA, STAGES,
                )  # fmt: skip
            else:
                for j in tl.range(0, BM):
                    if row0 + j < rows:
                        _rows(
                            q_ptr, pages_src, cache_ptr, w_ptr, lens_ptr, table_ptr, out_ptr, rows,
                            keys, next_n, q_stride, page_stride, w_stride, table_stride, out_stride,
                            row0 + j, begin, end, 1, BN, PAGE_, H, D, TMA, STAGES,
                        )  # fmt: skip
        start = base + end
        g += 1
