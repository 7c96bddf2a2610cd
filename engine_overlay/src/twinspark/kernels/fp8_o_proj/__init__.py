"""The o-projection's first matrix: a block-scaled FP8 product for each group of heads.

Replaces DeepGEMM's `fp8_einsum("bhr,hdr->bhd")` (vllm/models/deepseek_v4/nvidia/ops/o_proj.py:66
@0.27.1) and takes `wo_a` as the loader leaves it without DeepGEMM: [G*R, K] with float32 scales.
"""
# ruff: noqa: PLR0913 - the operation's own arguments

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, select_sm121, sm121_table
from twinspark.kernels.dispatch import (
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
from twinspark.kernels.fp8_o_proj.kernel import (
    SCALE_BLOCK,
    fp8_o_proj_few_kernel,
    fp8_o_proj_kernel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "fp8_o_proj"
FEW_TOKENS = 16  # up to here one tile of tokens, and all of the time is latency
SOME_TOKENS = 512

# m: tokens, n: ranks, k: depth a step.
# Few tokens: k/128 scale blocks go side by side, (m + n)*k bytes a stage; with two stages or more
# 99 KiB allow k = 1024 only at n = 16. More tokens: k = 128, because every 128 of depth has its own
# scale, n <= 128, because every 128 ranks have, and m*n <= 64*32*warps, because the product of a
# step and the sum over steps are separate accumulators.
CONFIGS = tuple(
    Config(m=16, n=n, k=k, warps=warps, stages=stages)
    for n, k, warps in ((16, 512, 2), (16, 512, 4), (16, 1024, 4), (32, 256, 4), (32, 512, 4))
    for stages in (2, 3, 4)
) + tuple(
    Config(m=m, n=n, k=SCALE_BLOCK, warps=warps, stages=stages, tma=tma)
    for m, n, warps in (
        (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8),
    )
    for stages in (2, 3, 4)
    for tma in (True, False)
)  # fmt: skip
SM90_FEW = Config(m=16, n=16, k=512, warps=2, stages=4)
SM90_SOME = Config(m=64, n=64, k=SCALE_BLOCK, warps=4, stages=6, tma=True)
SM90_MANY = Config(m=128, n=64, k=SCALE_BLOCK, warps=4, stages=3, tma=True)
INTERPRETER_FEW = Config(m=16, n=32, k=256, warps=4, stages=1)
INTERPRETER = Config(m=64, n=64, k=SCALE_BLOCK, warps=4, stages=1)
# What was fastest on an H200 at one of the registered shapes, and what came close.
FINALISTS_FEW = (
    SM90_FEW,
    Config(m=16, n=16, k=1024, warps=4, stages=3),
    Config(m=16, n=32, k=512, warps=4, stages=4),
)
FINALISTS_SOME = (
    SM90_SOME,
    Config(m=64, n=64, k=SCALE_BLOCK, warps=4, stages=4, tma=True),
    Config(m=128, n=32, k=SCALE_BLOCK, warps=4, stages=6, tma=True),
)
FINALISTS_MANY = (
    SM90_MANY,
    Config(m=64, n=128, k=SCALE_BLOCK, warps=4, stages=3, tma=True),
    Config(m=128, n=128, k=SCALE_BLOCK, warps=8, stages=4, tma=True),
)


def choose(where: Target, tokens: int) -> tuple[Config, str]:
    """Configuration for a device and a number of tokens, with the reason."""
    few, many = tokens <= FEW_TOKENS, tokens > SOME_TOKENS
    if where.capability == 0:
        return INTERPRETER_FEW if few else INTERPRETER, "interpreter: smallest tile"
    size = f"T <= {FEW_TOKENS}" if few else f"T {'>' if many else '<='} {SOME_TOKENS}"
    if where.capability == 90:
        chosen = SM90_FEW if few else SM90_MANY if many else SM90_SOME
        return chosen, f"sm_90: fastest measured on H200, {size}"
    rows = 16 if few else 128 if many else 64
    table = [row for row in sm121_table() if row.op == OP and row.config.m == rows]
    return select_sm121(table, OP), f"{where.name}: chosen from what fits sm_121 (rendered), {size}"


def asked(config: Config) -> Config:
    """A configuration that is asked for: every block of depth and of ranks has its own scale.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    depths = POWERS[7:12] if config.m < 64 else (SCALE_BLOCK,)
    return admitted(OP, config, m=POWERS[4:9], n=POWERS[4:8], k=depths)


def grouped(
    weight: torch.Tensor, weight_scale: torch.Tensor, groups: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """View `wo_a` as the loader leaves it, [G*R, K] and [G*R/128, K/128], by group.

    Raises:
        KernelError: The rows do not divide into groups, or are no matrix.
    """
    if weight.dim() == 3:
        return weight, weight_scale
    named = {"weight": weight, "weight_scale": weight_scale}
    ranked(OP, named, weight=2, weight_scale=2)
    if groups < 1 or weight.shape[0] % groups or weight_scale.shape[0] % groups:
        raise KernelError(
            f"{OP}: {groups} groups do not divide weight {shape(weight)}, "
            f"scale {shape(weight_scale)}"
        )
    return weight.unflatten(0, (groups, -1)), weight_scale.unflatten(0, (groups, -1))


def _describable(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether groups, rows and depth flatten to two dimensions that descriptors can express."""
    tokens, _, depth = x.shape
    packed = x.stride() == (depth, tokens * depth, 1) or x.shape[1] == 1
    aligned = x.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    return bool(packed and weight.is_contiguous() and x.stride(0) == depth and aligned)


def launch(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out: torch.Tensor,
    *,
    config: Config,
) -> torch.Tensor:
    """Run one configuration; `dispatch` has checked the arguments.

    Args:
        x: [T, G, K] float8_e4m3fn; the engine's is a transposed [G, T, K].
        x_scale: [T, G, K/128] float32, any strides.
        weight: [G, R, K] float8_e4m3fn.
        weight_scale: [G, R/128, K/128] float32.
        out: [T, G, R] bfloat16, written.
        config: Tiles; descriptors are used only where the layout allows them.

    Returns:
        `out`.
    """
    tokens, groups, depth = x.shape
    ranks = weight.shape[1]
    if out.numel() == 0:
        return out
    strides = (
        *x.stride()[:2],
        *weight.stride()[:2],
        *x_scale.stride(),
        *weight_scale.stride(),
        *out.stride()[:2],
    )
    sizes = (tokens, ranks, depth, *strides)
    # 64-bit offsets in the loop only where the scales need them: they cost registers
    far = max(x_scale.stride(2), weight_scale.stride(2)) * (depth // SCALE_BLOCK) >= 2**31
    grid = (-(-ranks // config.n), -(-tokens // config.m), groups)
    if config.m < 64:
        fp8_o_proj_few_kernel[grid](
            x, weight, x_scale, weight_scale, out, *sizes,
            BM=config.m, BN=config.n, BLOCKS=math.gcd(config.k, depth) // SCALE_BLOCK,
            FAR=far, STAGES=config.stages, **config.options(),
        )  # fmt: skip
        return out
    tma = config.tma and _describable(x, weight)
    x_src, w_src = _descriptors(x, weight, config) if tma else (x, weight)
    fp8_o_proj_kernel[grid](
        x_src, w_src, x_scale, weight_scale, out, *sizes,
        BM=config.m, BN=config.n, BK=config.k, TMA=tma, FAR=far, STAGES=config.stages,
        **config.options(),
    )  # fmt: skip
    return out


def _descriptors(x: torch.Tensor, weight: torch.Tensor, config: Config) -> tuple[object, object]:
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - not in every mode

    depth = x.shape[2]
    return (
        TensorDescriptor.from_tensor(x.transpose(0, 1).reshape(-1, depth), [config.m, config.k]),
        TensorDescriptor.from_tensor(weight.view(-1, depth), [config.n, config.k]),
    )


def dispatch(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out: torch.Tensor,
    *,
    config: Config | None = None,
) -> tuple[Callable[..., torch.Tensor], str]:
    """The kernel for a request: call it with the same five tensors (weights by `grouped`).

    Args:
        x: [T, G, K] float8_e4m3fn, K a multiple of 128.
        x_scale: [T, G, K/128] float32.
        weight: [G, R, K] float8_e4m3fn, R a multiple of 128.
        weight_scale: [G, R/128, K/128] float32.
        out: [T, G, R] bfloat16.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    named = {
        "x": x, "x_scale": x_scale, "weight": weight, "weight_scale": weight_scale, "out": out,
    }  # fmt: skip
    ranked(OP, named, x=3, weight=3)
    tokens, groups, depth = x.shape
    ranks = weight.shape[1]
    blocks = depth // SCALE_BLOCK
    fp8 = torch.float8_e4m3fn
    require(
        OP,
        named,
        x=Wanted((tokens, groups, blocks * SCALE_BLOCK), fp8, "last"),
        x_scale=Wanted((tokens, groups, blocks), torch.float32, "any"),
        weight=Wanted((groups, ranks // SCALE_BLOCK * SCALE_BLOCK, depth), fp8, "last"),
        weight_scale=Wanted((groups, ranks // SCALE_BLOCK, blocks), torch.float32, "any"),
        out=Wanted((tokens, groups, ranks), torch.bfloat16, "last"),
    )
    where = runnable(x, OP)
    chosen, reason = (asked(config), "asked for") if config else choose(where, tokens)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen), reason
