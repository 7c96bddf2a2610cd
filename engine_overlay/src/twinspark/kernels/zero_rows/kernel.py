"""Triton kernel that zeroes whole rows of a KV cache by block id."""
# ruff: noqa: ANN001, ANN201, N803 - Triton's parameters, not Python's
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def zero_rows_kernel(
    base_ptr,  # i32 words of the cache
    ids_ptr,  # [n] i64 block ids
    row_words,
    row_stride,
    BLOCK: tl.constexpr,
):
    """One chunk of BLOCK words of one row."""
    row = tl.load(ids_ptr + tl.program_id(1)).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros((BLOCK,), dtype=tl.int32)
    tl.store(base_ptr + row * row_stride + at, zero, mask=at < row_words)
