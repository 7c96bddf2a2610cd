"""Triton kernel of the C128A index metadata, with the row stride pinned to the buffer's."""
# ruff: noqa: ANN001, ANN201, N803, PLR0913, PLR0917 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def c128a_metadata_kernel(
    decode_ptr,  # [T, width] i32: global slots of the compressed tokens a decode row may see
    decode_stride,
    lens_ptr,  # [T] i32
    prefill_ptr,  # [T, prefill_stride] i32: local indices
    prefill_stride,
    positions_ptr,  # [tokens] i64
    ratio,
    active,  # widest row of this step, in compressed tokens
    decodes,
    request_ptr,  # [tokens] i32
    table_ptr,  # [requests, pages] i32
    table_stride,
    page,
    slot_ptr,  # [tokens] i64; negative: a padding token
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One chunk of BLOCK entries of one token's row.

    A decode row is written to the end of its last ALIGN entries and no further, since its length
    bounds the reads; a prefill row is written to its full width, since nothing else bounds them.
    """
    token = tl.program_id(0)
    position = tl.load(positions_ptr + token)
    count = tl.minimum((position + 1) // ratio, active).to(tl.int32)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if token < decodes:
        if tl.program_id(1) == 0:
            live = tl.load(slot_ptr + token) >= 0
            tl.store(lens_ptr + token, tl.where(live, count, 0))
        written = tl.minimum(tl.maximum((count + ALIGN - 1) // ALIGN, 1) * ALIGN, active)
        if tl.program_id(1) * BLOCK < written:
            request = tl.load(request_ptr + token).to(tl.int64)
            seen = at < count
            pages = table_ptr + request * table_stride + at // page
            block = tl.load(pages, mask=seen, other=0)
            slot = tl.where(seen, block * page + at % page, -1)
            out = decode_ptr + token.to(tl.int64) * decode_stride
            tl.store(out + at, slot, mask=at < written)
    else:
        out = prefill_ptr + (token - decodes).to(tl.int64) * prefill_stride
        tl.store(out + at, tl.where(at < count, at, -1), mask=at < active)
