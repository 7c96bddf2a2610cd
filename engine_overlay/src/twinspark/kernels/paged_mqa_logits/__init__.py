"""Indexer logits of decode: a few query rows against every page of their request.

Replaces DeepGEMM's `fp8_paged_mqa_logits` and its schedule metadata where the card has neither
(vllm/utils/deep_gemm.py:544,565@0.27.1).
"""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, select_sm121, sm121_table
from twinspark.kernels.dispatch import (
    H200,
    POWERS,
    KernelError,
    Target,
    Wanted,
    admitted,
    ranked,
    record,
    require,
    runnable,
    shape,
)
from twinspark.kernels.paged_mqa_logits.kernel import (
    HEAD_DIM,
    HEADS,
    PAGE,
    paged_mqa_logits_kernel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "paged_mqa_logits"
ROW_ALIGNMENT = 256  # float32 elements, as DeepGEMM's result
PAGE_BYTES = PAGE * (HEAD_DIM + 4)

# m: rows that share a tile of keys, n: keys a step. m*n <= 32*warps keeps the accumulators at
# 64 registers a thread, which leaves room for 8 warps or more on an sm_121 multiprocessor; up to 4
# stages because at m=1 a step's arithmetic is shorter than its load.
CONFIGS = tuple(
    Config(m=m, n=n, warps=warps, stages=stages, tma=tma)
    for m in (1, 2)
    for n, warps in ((64, 4), (128, 4), (128, 8), (256, 8))
    for stages in (2, 3, 4)
    for tma in (True, False)
    if m * n <= 32 * warps and (n == PAGE or not tma)
)
SM90 = Config(m=1, n=PAGE, warps=4, stages=3, tma=True)
# What was fastest on an H200 at one of the registered shapes, and what came close. Pairs of rows
# gain under 3% there, because rows of one request pass through the L2 together.
FINALISTS = (
    SM90,
    Config(m=1, n=PAGE, warps=4, stages=2, tma=True),
    Config(m=1, n=PAGE, warps=4, stages=4, tma=True),
    Config(m=1, n=128, warps=4, stages=2),
)
FINALISTS_SHARED = (*FINALISTS, Config(m=2, n=PAGE, warps=4, stages=3, tma=True))
INTERPRETER = Config(m=1, n=32, warps=4, stages=1)
INTERPRETER_SHARED = Config(m=2, n=32, warps=4, stages=1)


def choose(where: Target, rows_per_request: int) -> tuple[Config, str]:
    """Configuration for a device, with the reason; pairs of rows where requests hold several."""
    shared = rows_per_request > 1
    rows = f"{rows_per_request} rows a request"
    if where.capability == 0:
        return INTERPRETER_SHARED if shared else INTERPRETER, f"interpreter, {rows}"
    if where.capability == 90:
        return SM90, f"sm_90: {H200}"
    table = [row for row in sm121_table() if row.op == OP and (row.config.m > 1) == shared]
    chosen = select_sm121(table, OP)
    return chosen, f"{where.name}: chosen from what fits sm_121 (rendered, not timed), {rows}"


def asked(config: Config) -> Config:
    """A configuration that is asked for; n from the least that a product takes.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    return admitted(OP, config, m=(1, 2, 4), n=POWERS[4:9])


def programs(config: Config, processors: int) -> int:
    """Programs in the grid: 16 warps for every multiprocessor, resident at once."""
    return processors * max(16 // config.warps, 1)


def launch(
    q: torch.Tensor,
    cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    max_keys: int,
    *,
    config: Config,
    processors: int,
    clean_logits: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run one configuration; `dispatch` has checked the arguments.

    A query, key, scale or weight that is not a number makes the logits that it enters NaN.

    Args:
        q: [B, next_n, 64, 128] float8_e4m3fn.
        cache: [blocks, 64, 1, 132] uint8; a page is its 64*128 values, then its 64 scales.
        weights: [B*next_n, 64] float32.
        context_lens: [B, next_n] int32; a row's logits from its length on are not written. A length
            past `max_keys`, or past what the table's columns hold, is cut off there.
        block_table: [B, pages] int32.
        max_keys: Columns of the result.
        config: Tiles.
        processors: Multiprocessors to spread over.
        clean_logits: Fill what is not written with -inf.
        out: [B*next_n, max_keys] float32 to write into, contiguous in the last dimension; made
            when omitted.

    Returns:
        [B*next_n, max_keys] float32, rows starting on 1024 B when made here.

    Raises:
        KernelError: `out` is not as it must be, or `max_keys` is negative.
    """
    if max_keys < 0:
        raise KernelError(f"{OP}: {max_keys} columns for q {shape(q)}")
    next_n = q.shape[1]
    rows = q.shape[0] * next_n
    if out is None:
        width = -(-max_keys // ROW_ALIGNMENT) * ROW_ALIGNMENT
        out = torch.empty((rows, width), dtype=torch.float32, device=q.device)[:, :max_keys]
    else:
        require(OP, {"out": out}, out=Wanted((rows, max_keys), torch.float32, "last"))
    if clean_logits:
        out.fill_(float("-inf"))
    if rows == 0 or max_keys == 0:
        return out
    groups = -(-rows // config.m)
    tma = config.tma and config.n == PAGE and cache.data_ptr() % 16 == 0
    paged_mqa_logits_kernel[(programs(config, processors),)](
        q,
        _pages(cache) if tma else cache,
        cache,
        weights,
        context_lens,
        block_table,
        out,
        rows,
        min(max_keys, block_table.shape[1] * PAGE),
        next_n,
        HEADS * HEAD_DIM,
        cache.stride(0),
        weights.stride(0),
        block_table.stride(0),
        out.stride(0),
        BM=config.m,
        BN=config.n,
        GROUPS=max(1 << (groups - 1).bit_length(), 1),
        PAGE_=PAGE,
        H=HEADS,
        D=HEAD_DIM,
        TMA=tma,
        STAGES=config.stages,
        **config.options(),
    )
    return out


def _pages(cache: torch.Tensor) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - not in every mode

    shape, strides = (cache.shape[0], PAGE, HEAD_DIM), (cache.stride(0), HEAD_DIM, 1)
    values = cache.view(torch.float8_e4m3fn).as_strided(shape, strides)
    return TensorDescriptor.from_tensor(values, [1, PAGE, HEAD_DIM])


def _check(
    q: torch.Tensor,
    cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
) -> None:
    named = {
        "q": q,
        "cache": cache,
        "weights": weights,
        "context_lens": context_lens,
        "block_table": block_table,
    }
    ranked(OP, named, q=4)
    batch, next_n = q.shape[0], q.shape[1]
    require(
        OP,
        named,
        q=Wanted((batch, next_n, HEADS, HEAD_DIM), torch.float8_e4m3fn),
        cache=Wanted((None, PAGE, 1, HEAD_DIM + 4), torch.uint8, "last"),
        weights=Wanted((batch * next_n, HEADS), torch.float32, "last"),
        context_lens=Wanted((batch, next_n), torch.int32),
        block_table=Wanted((batch, None), torch.int32, "last"),
    )
    if cache.stride()[1:] != (HEAD_DIM + 4, HEAD_DIM + 4, 1) or cache.stride(0) % 16:
        raise KernelError(
            f"{OP}: a page must be {PAGE_BYTES} adjacent bytes, pages a multiple of 16 B apart; "
            f"got cache {shape(cache)}"
        )


def dispatch(
    q: torch.Tensor,
    cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    *,
    rows_per_request: int | None = None,
    config: Config | None = None,
) -> tuple[Callable[..., torch.Tensor], str]:
    """The kernel for a request: call it with the same five tensors and `max_keys`.

    Args:
        q: [B, next_n, 64, 128] float8_e4m3fn.
        cache: [blocks, 64, 1, 132] uint8.
        weights: [B*next_n, 64] float32.
        context_lens: [B, next_n] int32.
        block_table: [B, pages] int32.
        rows_per_request: Adjacent rows that probably share a block table; next_n when omitted. The
            engine flattens speculative rows to next_n = 1: then it is the draft length plus 1. Only
            speed depends on it: the kernel compares the tables.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    _check(q, cache, weights, context_lens, block_table)
    where = runnable(q, OP)
    rows = rows_per_request or q.shape[1]
    chosen, reason = (asked(config), "asked for") if config else choose(where, rows)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen, processors=where.processors), reason
