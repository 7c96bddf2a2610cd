"""Indexer logits of prefill: every query row against a run of gathered keys.

Replaces DeepGEMM's `fp8_mqa_logits` where the card has none (vllm/utils/deep_gemm.py:499@0.27.1).
"""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.config import Config, fewest_shares, select_sm121, sm121_table
from twinspark.kernels.dispatch import (
    H200,
    POWERS,
    Target,
    Wanted,
    admitted,
    ranked,
    record,
    require,
    runnable,
)
from twinspark.kernels.mqa_logits.kernel import HEAD_DIM, HEADS, mqa_logits_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "mqa_logits"
ROW_ALIGNMENT = 256  # float32 elements: rows start on 1024 B, as DeepGEMM's do

WAVES = 4  # rounds of programs: with 1 or 2 the tail costs a tenth where rows are few

# m: query rows a program, n: keys a step. m*64 columns of float32 accumulators and n rows of them
# are spread over the warps: m*n <= 64*warps keeps them at 128 registers a thread or fewer, n >=
# 16*warps is what the matrix instructions of the warps cover. Stages past 3 buy nothing: a step's
# arithmetic is longer than its load.
CONFIGS = tuple(
    Config(m=m, n=n, warps=warps, stages=stages, tma=tma)
    for m in (1, 2, 4)
    for n, warps in ((64, 4), (128, 4), (128, 8), (256, 8))
    for stages in (2, 3)
    for tma in (True, False)
    if m * n <= 64 * warps
)
# What was fastest on an H200 at one of the registered shapes, and what came close.
FINALISTS = tuple(
    Config(m=m, n=n, warps=4, stages=stages, tma=True, maxnreg=cap, lean=lean, waves=waves)
    for m, n, stages, cap, lean in (
        (2, 128, 2, 128, False),
        (4, 64, 3, 0, False),
        (4, 64, 3, 0, True),
    )
    for waves in (1, 2, 4)
)
# The portable kernel's best on sm_90, where the Gluon form needs packed tensors.
SM90 = Config(m=4, n=64, warps=4, stages=3, tma=True, lean=True)
# The Gluon form: four rows and a stage of 128 keys, in 199 of 227 KiB of shared memory.
GLUON = Config(m=4, n=128, warps=4, stages=8, tma=True)
GLUON_REASON = f"sm_90: Gluon form, {H200}"
INTERPRETER = Config(m=2, n=16, warps=4, stages=1)


def choose(where: Target) -> tuple[Config, str]:
    """Configuration for a device, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter: smallest tile"
    if where.capability == 90:
        return SM90, f"sm_90: {H200}"
    chosen = select_sm121(sm121_table(), OP)
    return chosen, f"{where.name}: chosen from what fits sm_121 (rendered, not timed)"


def asked(config: Config) -> Config:
    """A configuration that is asked for; n from the least that a product takes.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    return admitted(OP, config, m=(1, 2, 4), n=POWERS[4:9])


def splits(rows: int, keys: int, config: Config, processors: int) -> int:
    """Programs that share one block of rows.

    Enough to fill the card with 16 warps a multiprocessor, as long as a program has 8 steps over
    which it loads its queries; then `waves` rounds of that, so that the last round's idle tail is
    short, as long as it has 64.
    """
    blocks = -(-rows // config.m)
    resident = processors * max(16 // config.warps, 1)
    steps = -(-keys // config.n)
    fill = min(-(-resident // blocks), steps // 8)
    rounds = min(-(-(config.waves or WAVES) * resident // blocks), steps // 64)
    return max(1, fill, rounds)


def splits_sm90(rows: int, keys: int, processors: int) -> int:
    """Shares of a block's keys in the Gluon form, whose programs go from share to share.

    The fewest that leave at most 7 in 100 of the last round without work, as long as a share has 8
    steps; else those that leave least.
    """
    blocks = -(-rows // GLUON.m)
    most = max(1, -(-keys // GLUON.n) // 8)
    fewest = min(-(-processors // blocks), most)

    return fewest_shares(blocks, processors, range(1, min(most, 4 * fewest + 8) + 1), 0.93)


def launch_sm90(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    *,
    processors: int,
    clean_logits: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`launch` through the Gluon form."""
    from triton.experimental.gluon import language as gl  # noqa: PLC0415 - sm_90 alone
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: PLC0415

    from twinspark.kernels.mqa_logits.kernel_sm90 import mqa_logits_sm90_kernel  # noqa: PLC0415

    rows, keys = q.shape[0], k.shape[0]
    out = _output(q, keys, out, clean_logits=clean_logits)
    if rows == 0 or keys == 0:
        return out

    def described(tensor: torch.Tensor, count: int) -> object:
        box = [count, HEAD_DIM]
        layout = gl.NVMMASharedLayout.get_default_for(box, gl.float8e4nv)
        return TensorDescriptor.from_tensor(tensor, box, layout)

    blocks, parts = -(-rows // GLUON.m), splits_sm90(rows, keys, processors)
    mqa_logits_sm90_kernel[min(blocks * parts, processors),](
        described(q.view(-1, HEAD_DIM), GLUON.m * HEADS),
        described(k, GLUON.n),
        k_scale,
        weights,
        ks,
        ke,
        out,
        rows,
        keys,
        weights.stride(0),
        out.stride(0),
        blocks,
        parts,
        PAIRS=GLUON.m // 2,
        BN=GLUON.n,
        H=HEADS,
        D=HEAD_DIM,
        STAGES=GLUON.stages,
        num_warps=GLUON.warps,
    )
    return out


def _output(
    q: torch.Tensor, keys: int, out: torch.Tensor | None, *, clean_logits: bool
) -> torch.Tensor:
    if out is None:
        width = -(-keys // ROW_ALIGNMENT) * ROW_ALIGNMENT
        out = torch.empty((q.shape[0], width), dtype=torch.float32, device=q.device)[:, :keys]
    else:
        require(OP, {"out": out}, out=Wanted((q.shape[0], keys), torch.float32, "last"))
    if clean_logits:
        out.fill_(float("-inf"))
    return out


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    *,
    op: str = OP,
) -> None:
    """Refuse queries, keys, scales, weights or bounds that are not as `dispatch` says.

    Raises:
        KernelError: In the name of `op`, with every shape.
    """
    named = {"q": q, "k": k, "k_scale": k_scale, "weights": weights, "ks": ks, "ke": ke}
    ranked(op, named, q=3, k=2)
    m, n = q.shape[0], k.shape[0]
    require(
        op,
        named,
        q=Wanted((m, HEADS, HEAD_DIM), torch.float8_e4m3fn, "last"),
        k=Wanted((n, HEAD_DIM), torch.float8_e4m3fn, "last"),
        k_scale=Wanted((n,), torch.float32),
        weights=Wanted((m, HEADS), torch.float32, "last"),
        ks=Wanted((m,), torch.int32),
        ke=Wanted((m,), torch.int32),
    )


def describable(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether tensor descriptors can express the layouts: q packed, k's rows on 16 B."""
    aligned = q.data_ptr() % 16 == 0 and k.data_ptr() % 16 == 0
    return bool(q.is_contiguous() and k.stride(0) % 16 == 0 and aligned)


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
    clean_logits: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run one configuration; `dispatch` has checked the arguments.

    A query, key, scale or weight that is not a number makes the logits that it enters NaN.

    Args:
        q: [M, 64, 128] float8_e4m3fn.
        k: [N, 128] float8_e4m3fn.
        k_scale: [N] float32.
        weights: [M, 64] float32.
        ks: [M] int32.
        ke: [M] int32; a row's logits outside [ks, ke) are not written.
        config: Tiles; descriptors are used only where the layout allows them.
        processors: Multiprocessors to spread over.
        clean_logits: Fill what is not written with -inf.
        out: [M, N] float32 to write into, contiguous in the last dimension; made when omitted.

    Returns:
        [M, N] float32, rows starting on 1024 B when made here.

    Raises:
        KernelError: `out` is not as it must be.
    """
    rows, keys = q.shape[0], k.shape[0]
    out = _output(q, keys, out, clean_logits=clean_logits)
    if rows == 0 or keys == 0:
        return out
    tma = config.tma and describable(q, k)
    q_src, k_src = descriptors(q, k, config) if tma else (q, k)
    grid = (-(-rows // config.m), splits(rows, keys, config, processors))
    mqa_logits_kernel[grid](
        q_src,
        k_src,
        k_scale,
        weights,
        ks,
        ke,
        out,
        rows,
        keys,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        weights.stride(0),
        out.stride(0),
        BM=config.m,
        BN=config.n,
        H=HEADS,
        D=HEAD_DIM,
        TMA=tma,
        STAGES=None if config.lean else config.stages,
        **config.options(),
    )
    return out


def descriptors(q: torch.Tensor, k: torch.Tensor, config: Config) -> tuple[object, object]:
    """Descriptors over [M*64, 128] queries and [N, 128] keys, in a configuration's boxes."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - not in every mode

    flat = q.view(-1, HEAD_DIM)
    return (
        TensorDescriptor.from_tensor(flat, [config.m * HEADS, HEAD_DIM]),
        TensorDescriptor.from_tensor(k, [config.n, HEAD_DIM]),
    )


def dispatch(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
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
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    check(q, k, k_scale, weights, ks, ke)
    where = runnable(q, OP)
    if config is None and where.capability == 90 and describable(q, k):
        record(OP, "gluon sm_90", GLUON_REASON)
        return partial(launch_sm90, processors=where.processors), GLUON_REASON
    chosen, reason = (asked(config), "asked for") if config else choose(where)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen, processors=where.processors), reason
