"""Product with the hyper-connection's mixing matrix, and the sum of squares its norm needs.

Replaces DeepGEMM's `tf32_hc_prenorm_gemm`, which stock calls unconditionally
(vllm/model_executor/kernels/mhc/tilelang.py:372@0.27.1). The consumer adds the splits up.
"""
# ruff: noqa: PLR0913 - the operation's own arguments

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, select_sm121, sm121_table
from twinspark.kernels.dispatch import (
    H200,
    POWERS,
    Target,
    Wanted,
    admitted,
    interpreting,
    ranked,
    record,
    require,
    runnable,
)
from twinspark.kernels.hc_prenorm_gemm.kernel import MIXES, MIXES_PADDED, hc_prenorm_gemm_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "hc_prenorm_gemm"
TERMS = 2  # bf16 terms fn is split into: 16 bits of mantissa, against tf32's 11
ONE_TILE = 16  # up to here one tile of 16 rows holds them all
FEW_ROWS = 128  # up to here the matrix is much of the bytes

# m: rows a program, n: the 24 mixes padded to 32, k: depth a step. m*k*2 B of x and 32*k*4 B of the
# matrix a stage, and m*k/warps/32 float32 squares a thread: m*k <= 8192 keeps those at 64.
CONFIGS = tuple(
    Config(m=m, n=MIXES_PADDED, k=k, warps=warps, stages=stages, tma=tma)
    for m, warps in ((16, 4), (64, 4), (128, 8))
    for k in (64, 128)
    for stages in (2, 3)
    for tma in (True, False)
    if m * k <= 8192
)
SM90_ONE = Config(m=16, n=MIXES_PADDED, k=128, warps=4, stages=3, tma=True)
SM90_FEW = Config(m=64, n=MIXES_PADDED, k=64, warps=4, stages=3)
SM90_MANY = Config(m=128, n=MIXES_PADDED, k=64, warps=8, stages=4, tma=True)
SM90_UNSPLIT = Config(m=64, n=MIXES_PADDED, k=128, warps=4, stages=4, tma=True)
# What was fastest on an H200 at one of the registered shapes, and what came close.
FINALISTS_ONE = (SM90_ONE, Config(m=16, n=MIXES_PADDED, k=128, warps=4, stages=2, tma=True))
FINALISTS_FEW = (
    SM90_FEW,
    Config(m=64, n=MIXES_PADDED, k=128, warps=4, stages=2, tma=True),
    Config(m=16, n=MIXES_PADDED, k=128, warps=4, stages=2, tma=True),
)
FINALISTS_MANY = (
    SM90_MANY,
    SM90_UNSPLIT,
    Config(m=128, n=MIXES_PADDED, k=64, warps=8, stages=5, tma=True),
    Config(m=128, n=MIXES_PADDED, k=64, warps=4, stages=4, tma=True),
    Config(m=64, n=MIXES_PADDED, k=64, warps=4, stages=4, tma=True),
    Config(m=64, n=MIXES_PADDED, k=128, warps=4, stages=3, tma=True),
)
INTERPRETER = Config(m=16, n=MIXES_PADDED, k=64, warps=4, stages=1)


def choose(where: Target, rows: int, splits: int) -> tuple[Config, str]:
    """Configuration for a device, a number of rows and of splits, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter: smallest tile"
    one, few = rows <= ONE_TILE, rows <= FEW_ROWS
    size = f"M <= {ONE_TILE}" if one else f"M {'<=' if few else '>'} {FEW_ROWS}"
    if where.capability == 90:
        many = SM90_MANY if splits >= 4 else SM90_UNSPLIT  # 128 rows a program leave SMs idle
        chosen = SM90_ONE if one else SM90_FEW if few else many
        return chosen, f"sm_90: {H200}, {size}"
    tile = 16 if one else 64 if few else 128
    table = [row for row in sm121_table() if row.op == OP and row.config.m == tile]
    return select_sm121(table, OP), f"{where.name}: chosen from what fits sm_121 (rendered), {size}"


def asked(config: Config) -> Config:
    """A configuration that is asked for; all the mixes are in one tile.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    return admitted(OP, config, m=POWERS[4:9], n=(MIXES_PADDED,), k=POWERS[4:9])


def launch(
    x: torch.Tensor,
    fn: torch.Tensor,
    out: torch.Tensor,
    square: torch.Tensor,
    *,
    config: Config,
    terms: int = TERMS,
) -> None:
    """Run one configuration; `dispatch` has checked the arguments.

    Args:
        x: [M, K] bfloat16. A row with an infinity gives NaN in `out` where the definition may give
            infinity: fn's second term can be zero. Its sum of squares is infinite all the same.
        fn: [24, K] float32.
        out: [splits, M, 24] float32, written: each split's share of `x @ fn.T`.
        square: [splits, M] float32, written: each split's share of the sum of squares.
        config: Tiles.
        terms: bfloat16 terms fn is split into.
    """
    rows, depth = x.shape
    if rows == 0:
        return
    tma = config.tma and _describable(x, fn)
    x_src, fn_src = _descriptors(x, fn, config) if tma else (x, fn)
    hc_prenorm_gemm_kernel[(-(-rows // config.m), out.shape[0])](
        x_src,
        fn_src,
        out,
        square,
        rows,
        depth,
        x.stride(0),
        fn.stride(0),
        out.stride(0),
        out.stride(1),
        square.stride(0),
        N=MIXES,
        BM=config.m,
        BN=config.n,
        BK=config.k,
        STAGES=config.stages,
        TERMS=terms,
        WIDE=interpreting(),
        TMA=tma,
        **config.options(),
    )


def _describable(x: torch.Tensor, fn: torch.Tensor) -> bool:
    """Whether tensor descriptors can express the layouts: rows and bases on 16 B."""
    rows = x.stride(0) % 8 == 0 and fn.stride(0) % 4 == 0
    return bool(rows and x.data_ptr() % 16 == 0 and fn.data_ptr() % 16 == 0)


def _descriptors(x: torch.Tensor, fn: torch.Tensor, config: Config) -> tuple[object, object]:
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - not in every mode

    return (
        TensorDescriptor.from_tensor(x, [config.m, config.k]),
        TensorDescriptor.from_tensor(fn, [config.n, config.k]),
    )


def dispatch(
    x: torch.Tensor,
    fn: torch.Tensor,
    out: torch.Tensor,
    square: torch.Tensor,
    *,
    config: Config | None = None,
) -> tuple[Callable[..., None], str]:
    """The kernel for a request: call it with the same four tensors.

    Args:
        x: [M, K] bfloat16.
        fn: [24, K] float32.
        out: [splits, M, 24] float32.
        square: [splits, M] float32.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    named = {"x": x, "fn": fn, "out": out, "square": square}
    ranked(OP, named, x=2, out=3, square=2)
    rows, depth = x.shape
    require(
        OP,
        named,
        x=Wanted((rows, depth), torch.bfloat16, "last"),
        fn=Wanted((MIXES, depth), torch.float32, "last"),
        out=Wanted((square.shape[0], rows, MIXES), torch.float32, "last"),
        square=Wanted((out.shape[0], rows), torch.float32, "last"),
    )
    where = runnable(x, OP, minimum=80)
    splits = out.shape[0]
    chosen, reason = (asked(config), "asked for") if config else choose(where, rows, splits)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen), reason
