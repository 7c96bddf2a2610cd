"""Zero whole KV-cache rows by block id: exactly the physical row, once.

For the block zeroer, whose stock form takes a row's stride for the span of each layer's page
(vllm/v1/worker/utils.py:158-173@0.27.1).
"""

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
    admitted,
    record,
    runnable,
    shape,
)
from twinspark.kernels.zero_rows.kernel import zero_rows_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "zero_rows"
# n: 4-byte words a program. 16 B a thread a store: from one store a thread (n = 128*warps) to 16.
CONFIGS = tuple(
    Config(m=1, n=n, warps=warps)
    for warps in (4, 8)
    for n in (1024, 2048, 4096, 8192)
    if n >= 128 * warps
)
SM90 = Config(m=1, n=1024, warps=4)
INTERPRETER = Config(m=1, n=1024, warps=4)


def choose(where: Target) -> tuple[Config, str]:
    """Configuration for a device, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter: smallest tile"
    if where.capability == 90:
        return SM90, f"sm_90: {H200}"
    return select_sm121(sm121_table(), OP, (SM90,)), f"{where.name}: as on H200, fits (rendered)"


def asked(config: Config) -> Config:
    """A configuration that is asked for.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    return admitted(OP, config, m=(1,), n=POWERS)


def launch(cache: torch.Tensor, ids: torch.Tensor, *, config: Config) -> None:
    """Run one configuration; `dispatch` has checked the arguments.

    Args:
        cache: [blocks, bytes] 1-byte elements, rows a multiple of 4 B.
        ids: [n] int64, each in [0, blocks).
        config: Tile.
    """
    words = cache.shape[1] // 4
    if ids.numel() == 0 or words == 0:
        return
    grid = (-(-words // config.n), ids.numel())
    base = cache.view(torch.int32)
    zero_rows_kernel[grid](base, ids, words, base.stride(0), BLOCK=config.n, **config.options())


def dispatch(
    cache: torch.Tensor, ids: torch.Tensor, *, config: Config | None = None
) -> tuple[Callable[[torch.Tensor, torch.Tensor], None], str]:
    """The kernel for a request: call it with the same two tensors.

    Args:
        cache: [blocks, bytes] of a 1-byte type; rows and their distance multiples of 4 B.
        ids: [n] int64 block ids, at most 65,535, each in [0, blocks). They stay on the device and
            are not looked at: one outside zeroes whatever lies there.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    bytes_ok = cache.dim() == 2 and cache.element_size() == 1 and cache.stride(1) == 1
    if not bytes_ok or cache.shape[1] % 4 or cache.stride(0) % 4 or cache.data_ptr() % 4:
        raise KernelError(f"{OP}: cache must be [blocks, 4*n bytes], got {shape(cache)}")
    if ids.dim() != 1 or ids.dtype != torch.int64 or not ids.is_contiguous():
        raise KernelError(f"{OP}: ids must be [n] int64, contiguous, got {shape(ids)}")
    if ids.numel() > 65_535:
        raise KernelError(f"{OP}: at most 65,535 rows a call, got ids {shape(ids)}")
    if ids.numel() and cache.shape[0] == 0:
        raise KernelError(f"{OP}: no block for ids {shape(ids)} to name, got cache {shape(cache)}")
    where = runnable(cache, OP, minimum=80)
    chosen, reason = (asked(config), "asked for") if config else choose(where)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen), reason
