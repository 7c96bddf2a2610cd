"""The o-projection's first matrix: a block-scaled FP8 product for each group of heads.

Replaces DeepGEMM's `fp8_einsum("bhr,hdr->bhd")` (vllm/models/deepseek_v4/nvidia/ops/o_proj.py:66
@0.27.1) and takes `wo_a` as the loader leaves it without DeepGEMM: [G*R, K] with float32 scales.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, select_sm121, sm121_table
from twinspark.kernels.dispatch import KernelError, Target, Wanted, record, require, runnable, shape
from twinspark.kernels.fp8_o_proj.kernel import SCALE_BLOCK, fp8_o_proj_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "fp8_o_proj"
FEW_TOKENS = 32  # one tile of 16 or 32 tokens: the weight is all of the bytes
SOME_TOKENS = 512

# m: tokens, n: ranks, k: depth a step; k = 128 because every 128 of depth has its own scale, n <=
# 128 because every 128 ranks have. m < 64 puts the weight on the row side. m*n <= 64*32*warps:
# the product of a step and the sum over steps are separate accumulators.
CONFIGS = tuple(
    Config(m=m, n=n, k=SCALE_BLOCK, warps=warps, stages=stages, tma=tma)
    for m, n, warps in (
        (16, 32, 4), (16, 64, 4), (16, 128, 4), (32, 32, 4), (32, 64, 4), (64, 32, 4),
        (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8), (256, 128, 16),
    )
    for stages in (2, 3, 4, 6, 8)
    for tma in (True, False)
)  # fmt: skip
SM90_FEW = Config(m=16, n=64, k=128, warps=4, stages=6, tma=True)
SM90_SOME = Config(m=64, n=64, k=128, warps=4, stages=4, tma=True)
SM90_MANY = Config(m=128, n=128, k=128, warps=8, stages=4, tma=True)
INTERPRETER = Config(m=16, n=64, k=128, warps=4, stages=1)


def choose(where: Target, tokens: int) -> tuple[Config, str]:
    """Configuration for a device and a number of tokens, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter: smallest tile"
    size = f"T = {tokens}"
    if where.capability == 90:
        few = SM90_FEW if tokens <= FEW_TOKENS else SM90_SOME
        chosen = SM90_MANY if tokens > SOME_TOKENS else few
        return chosen, f"sm_90: fastest measured on H200, {size}"
    limit = 16 if tokens <= FEW_TOKENS else 64 if tokens <= SOME_TOKENS else 128
    table = [row for row in sm121_table() if row.op == OP and row.config.m == limit]
    return select_sm121(table, OP), f"{where.name}: chosen from what fits sm_121 (rendered), {size}"


def grouped(
    weight: torch.Tensor, weight_scale: torch.Tensor, groups: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """View `wo_a` as the loader leaves it, [G*R, K] and [G*R/128, K/128], by group.

    Raises:
        KernelError: The rows do not divide into groups.
    """
    if weight.dim() == 3:
        return weight, weight_scale
    if weight.shape[0] % groups or weight_scale.shape[0] % groups:
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
    return packed and weight.is_contiguous() and x.stride(0) == depth and aligned


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
    tma = config.tma and _describable(x, weight)
    x_src, w_src = _descriptors(x, weight, config) if tma else (x, weight)
    grid = (-(-ranks // config.n), -(-tokens // config.m), groups)
    fp8_o_proj_kernel[grid](
        x_src,
        w_src,
        x_scale,
        weight_scale,
        out,
        tokens,
        ranks,
        depth,
        x.stride(0),
        x.stride(1),
        weight.stride(0),
        weight.stride(1),
        x_scale.stride(0),
        x_scale.stride(1),
        x_scale.stride(2),
        weight_scale.stride(0),
        weight_scale.stride(1),
        weight_scale.stride(2),
        out.stride(0),
        out.stride(1),
        BM=config.m,
        BN=config.n,
        BK=config.k,
        SWAP=config.m < 64,
        TMA=tma,
        STAGES=config.stages,
        **config.options(),
    )
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
    """The kernel for a request: call it with the same five tensors (weights as `grouped` gives them).

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
    tokens, groups, depth = x.shape
    named = {
        "x": x, "x_scale": x_scale, "weight": weight, "weight_scale": weight_scale, "out": out,
    }  # fmt: skip
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
    chosen, reason = (config, "asked for") if config else choose(where, tokens)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen), reason
