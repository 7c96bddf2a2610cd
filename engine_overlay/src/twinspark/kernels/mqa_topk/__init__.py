"""Indexer logits of prefill and their top-k in one: the logits never exist as [M, N].

Serves what the engine does in two calls, DeepGEMM's `fp8_mqa_logits` and `top_k_per_row_prefill`
(vllm/model_executor/layers/sparse_attn_indexer.py:496-518@0.27.1). Not wired into the engine.
"""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, fewest_shares, select_sm121, sm121_table
from twinspark.kernels.dispatch import POWERS, KernelError, Target, admitted, record, runnable
from twinspark.kernels.mqa_logits import check, describable, descriptors
from twinspark.kernels.mqa_topk.kernel import (
    HEAD_DIM,
    HEADS,
    mqa_topk_collect_kernel,
    mqa_topk_merge_kernel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "mqa_topk"
TOPK = 512  # of DeepSeek-V4-Flash's indexer
MOST_TOPK = 2048  # a row's candidates pass through one program's registers
MOST_SPLITS = 8  # likewise, when they are merged
PART = 1024  # logits of a row, or candidates, that pass through the registers at once
RUNS = 8  # runs of keys a split must have: each split warms its own threshold up

# m: query rows a program, n: keys a step, k: keys a run. Choosing takes registers beside the
# product's: of these tiles the largest, 128 accumulators a thread, mostly spill. Runs shorter than
# 1024 keys look at the logits too often, longer than 2048 let the threshold grow stale.
CONFIGS = tuple(
    Config(m=m, n=n, k=k, warps=warps, stages=stages, tma=tma)
    for m in (2, 4)
    for n, warps in ((64, 4), (64, 8), (128, 8))
    for k in (1024, 2048)
    for stages in (2, 3)
    for tma in (True, False)
)
# Timed on an H200, where none is as fast as two kernels (docs/kernels.md).
FINALISTS = tuple(
    Config(m=m, n=n, k=k, warps=4, stages=stages, tma=True, lean=lean)
    for m, n, stages, lean in ((4, 64, 3, True), (2, 128, 2, False))
    for k in (1024, 2048)
)
SM90 = Config(m=4, n=64, k=1024, warps=4, stages=3, tma=True, lean=True)
INTERPRETER = Config(m=2, n=16, k=32, warps=4, stages=1)


def choose(where: Target) -> tuple[Config, str]:
    """Configuration for a device, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter: smallest tile"
    if where.capability == 90:
        return SM90, "sm_90: the tile that is fastest for the logits alone"
    chosen = select_sm121(sm121_table(), OP)
    return chosen, f"{where.name}: chosen from what fits sm_121 (rendered, not timed)"


def most(topk: int) -> int:
    """Candidates that a compaction may leave: a quarter over `topk` ends its bisection early."""
    return topk + topk // 4


def final(topk: int) -> int:
    """Candidates that a split may hand over, a power of two."""
    return 1 << (most(topk) - 1).bit_length()


def capacity(config: Config, topk: int) -> int:
    """Candidates that a row and split has room for: a power of two, a run and twice what is left.

    For the top 512 it is 4096: of 32,768 keys in random order, 1024 a run, a row compacts twice.
    """
    least = max(config.k + 2 * most(topk), final(topk))
    return 1 << (least - 1).bit_length()


def splits(rows: int, keys: int, config: Config, processors: int) -> int:
    """Programs that share a block of rows, 8 warps resident a multiprocessor.

    The fewest that leave at most a tenth of the last round idle, else those that leave least, as
    long as each has `RUNS` runs.
    """
    blocks, resident = -(-rows // config.m), processors * max(8 // config.warps, 1)
    most_shares = min(MOST_SPLITS, max(1, keys // (config.k * RUNS)))
    return fewest_shares(blocks, resident, range(1, most_shares + 1), 0.9)


def asked(config: Config) -> Config:
    """A configuration that is asked for; a run is whole steps.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    admitted(OP, config, m=(2, 4), n=POWERS[4:9])
    return admitted(OP, config, k=[run for run in POWERS if run >= config.n])


def collect(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    *,
    topk: int,
    config: Config,
    shares: int,
    room: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """First half of `launch`: every split's candidates, among them its top-k.

    Args:
        q: [M, 64, 128] float8_e4m3fn, M at least 1.
        k: [N, 128] float8_e4m3fn, N at least 1.
        k_scale: [N] float32.
        weights: [M, 64] float32.
        ks: [M] int32.
        ke: [M] int32.
        topk: Keys to choose.
        config: Tiles and run.
        shares: Splits of the keys.
        room: Candidates a row and split has room for, a power of two.

    Returns:
        [M, shares, room] int64, float32 bits above the key, and [M, shares] int32, how many of
        them there are, `final(topk)` at most.
    """
    rows, keys = q.shape[0], k.shape[0]
    lanes, part, piece = 32 * config.warps, min(config.k, PART), min(room, PART)
    blocks = -(-rows // config.m)
    scratch = torch.empty((blocks, shares, config.m, config.k), device=q.device)
    found = torch.empty((rows, shares, room), dtype=torch.int64, device=q.device)
    counts = torch.empty((rows, shares), dtype=torch.int32, device=q.device)
    tma = config.tma and describable(q, k)
    q_src, k_src = descriptors(q, k, config) if tma else (q, k)
    mqa_topk_collect_kernel[blocks, shares](
        q_src,
        k_src,
        k_scale,
        weights,
        ks,
        ke,
        scratch,
        found,
        counts,
        rows,
        keys,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        weights.stride(0),
        BM=config.m,
        BN=config.n,
        RUN=config.k,
        CAPACITY=room,
        LEAST=topk,
        MOST=most(topk),
        FINAL=final(topk),
        PART=part,
        WIDTH=min(part, max(lanes // config.m, 32)),
        PIECE=piece,
        LANES=min(piece, lanes),
        H=HEADS,
        D=HEAD_DIM,
        TMA=tma,
        STAGES=None if config.lean else config.stages,
        **config.options(),
    )
    return found, counts


def merge(
    found: torch.Tensor,
    counts: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    keys: int,
    out: torch.Tensor,
) -> torch.Tensor:
    """Second half of `launch`: a row's top-k of its splits' candidates.

    Args:
        found: [M, shares, room] int64 of `collect`.
        counts: [M, shares] int32 of `collect`.
        ks: [M] int32.
        ke: [M] int32.
        keys: N.
        out: [M, topk] int32 to write into.

    Returns:
        `out`.
    """
    rows, shares, room = found.shape
    topk = out.shape[1]
    wide = 1 << (shares - 1).bit_length()
    warps = 4 if wide * final(topk) <= 4096 else 8
    mqa_topk_merge_kernel[rows,](
        found,
        counts,
        ks,
        ke,
        out,
        keys,
        out.stride(0),
        SPLITS=shares,
        SPLITS_POW2=wide,
        CAPACITY=room,
        FINAL=final(topk),
        LEAST=topk,
        LEAST_POW2=1 << (topk - 1).bit_length(),
        LANES=min(wide * final(topk), 32 * warps),
        num_warps=warps,
    )
    return out


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    *,
    config: Config,
    processors: int,
    topk: int = TOPK,
    shares: int | None = None,
    room: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run one configuration; `dispatch` has checked the arguments.

    Args:
        q: [M, 64, 128] float8_e4m3fn.
        k: [N, 128] float8_e4m3fn.
        k_scale: [N] float32.
        weights: [M, 64] float32.
        ks: [M] int32.
        ke: [M] int32; a row's keys are those in [ks, ke).
        config: Tiles and run; descriptors are used only where the layout allows them.
        processors: Multiprocessors to spread over.
        topk: Keys to choose a row.
        shares: Splits of the keys; `splits` when omitted.
        room: Candidates a row and split has room for, a power of two; `capacity` when omitted.
        out: [M, topk] int32 to write into, its rows apart as one likes; made when omitted.

    Returns:
        [M, topk] int32: keys relative to `ks`, ascending, then -1 where a row sees fewer than
        `topk`. Exactly the float32 logits' largest; of equal ones the first keys.

    Raises:
        KernelError: `room` is too small for a run, or no power of two.
    """
    rows, keys = q.shape[0], k.shape[0]
    if out is None:
        out = torch.empty((rows, topk), dtype=torch.int32, device=q.device)
    if rows == 0 or keys == 0:
        return out.fill_(-1)
    shares = shares or splits(rows, keys, config, processors)
    room = room or capacity(config, topk)
    least = max(config.k + most(topk), final(topk))
    if room < least or room & (room - 1):
        raise KernelError(f"{OP}: room must be a power of two from {least} on, got {room}")
    found, counts = collect(
        q, k, k_scale, weights, ks, ke, topk=topk, config=config, shares=shares, room=room
    )
    return merge(found, counts, ks, ke, keys, out)


def dispatch(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    topk: int = TOPK,
    *,
    config: Config | None = None,
) -> tuple[Callable[..., torch.Tensor], str]:
    """The kernel for a request: call it with the same six tensors.

    Args:
        q: [M, 64, 128] float8_e4m3fn.
        k: [N, 128] float8_e4m3fn.
        k_scale: [N] float32.
        weights: [M, 64] float32.
        ks: [M] int32.
        ke: [M] int32.
        topk: Keys to choose a row, 1 to 2048.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    check(q, k, k_scale, weights, ks, ke, op=OP)
    if not 1 <= topk <= MOST_TOPK:
        raise KernelError(f"{OP}: topk must be 1 to {MOST_TOPK}, got {topk}")
    where = runnable(q, OP)
    chosen, reason = (asked(config), "asked for") if config else choose(where)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen, processors=where.processors, topk=topk), reason
