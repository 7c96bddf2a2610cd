"""C128A index metadata whose rows stay where a captured graph expects them.

Stock packs the decode rows at the step's own width, while a captured graph reads them at the width
of the capture (vllm/models/deepseek_v4/sparse_mla.py:320-341@0.27.1): here a decode row lies at the
buffer's own stride, always.
"""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from twinspark.kernels.c128a_metadata.kernel import c128a_metadata_kernel
from twinspark.kernels.config import Config, select_sm121, sm121_table
from twinspark.kernels.dispatch import (
    H200,
    POWERS,
    KernelError,
    Target,
    Wanted,
    admitted,
    record,
    require,
    runnable,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OP = "c128a_metadata"
ALIGNMENT = 128  # entries: what the attention kernels read in one piece

# n: entries a program; 16 B a thread a store.
CONFIGS = tuple(Config(m=1, n=n, warps=4) for n in (512, 1024, 2048))
SM90 = Config(m=1, n=1024, warps=4)
INTERPRETER = Config(m=1, n=1024, warps=4)


def choose(where: Target) -> tuple[Config, str]:
    """Configuration for a device, with the reason."""
    if where.capability == 0:
        return INTERPRETER, "interpreter"
    if where.capability == 90:
        return SM90, f"sm_90: {H200}"
    return select_sm121(sm121_table(), OP, (SM90,)), f"{where.name}: as on H200, fits (rendered)"


def asked(config: Config) -> Config:
    """A configuration that is asked for.

    Raises:
        KernelError: The kernel would not be right with it.
    """
    return admitted(OP, config, m=(1,), n=POWERS)


def _check_sizes(
    tokens: int,
    decodes: int,
    width: int,
    positive: dict[str, int],
    named: dict[str, torch.Tensor],
) -> None:
    """Refuse what `dispatch` does not see: scalars, and tensors that are long enough or not."""
    require(
        OP,
        named,
        token_to_req_indices=Wanted((None,), torch.int32),
        slot_mapping=Wanted((None,), torch.int64),
        decode_lens_buffer=Wanted((None,), torch.int32),
    )
    off = [f"{name} is {value}" for name, value in positive.items() if value < 1]
    if not 0 <= decodes <= tokens:
        off.append(f"{decodes} of {tokens} tokens decode")
    if not 0 <= width <= named["global_decode_buffer"].shape[1]:
        off.append(f"{width} compressed tokens do not fit a buffer row")
    a_row_each = (
        "token_to_req_indices", "slot_mapping", "global_decode_buffer", "decode_lens_buffer",
    )  # fmt: skip
    off += [f"{name} is too short" for name in a_row_each if named[name].shape[0] < decodes]
    if named["prefill_buffer"].numel() < (tokens - decodes) * width:
        off.append("prefill_buffer is too short")
    if off:
        have = "; ".join(f"{key} {shape(value)}" for key, value in named.items())
        raise KernelError(
            f"{OP}: {', '.join(off)}, for {decodes} decode and {tokens - decodes} prefill tokens "
            f"of {width}; got {have}"
        )


def launch(
    positions: torch.Tensor,
    compress_ratio: int,
    num_decode_tokens: int,
    token_to_req_indices: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    slot_mapping: torch.Tensor,
    global_decode_buffer: torch.Tensor,
    decode_lens_buffer: torch.Tensor,
    prefill_buffer: torch.Tensor,
    max_compressed_tokens: int = 8192,
    *,
    config: Config,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one configuration; same parameters as stock's `build_c128a_topk_metadata`.

    Args:
        positions: [T] int64.
        compress_ratio: Tokens that one compressed token stands for.
        num_decode_tokens: Tokens [0, this) decode, the rest prefill.
        token_to_req_indices: [>= num_decode_tokens] int32.
        block_table: [requests, pages] int32.
        block_size: Compressed tokens a block.
        slot_mapping: [>= num_decode_tokens] int64; negative marks a padding token.
        global_decode_buffer: [tokens, width] int32.
        decode_lens_buffer: [tokens] int32.
        prefill_buffer: [tokens, width] int32.
        max_compressed_tokens: Widest row of this step; at most the buffer's width.
        config: Tile.

    Returns:
        Decode rows [num_decode_tokens, width] at the buffer's stride, written to the end of each
        row's last 128 entries (its length bounds the reads); lengths [num_decode_tokens]; prefill
        rows [T - num_decode_tokens, max_compressed_tokens], packed and written whole.

    Raises:
        KernelError: A scalar that makes no sense, or a tensor that is too short or not as it must
            be: what `dispatch` is not given.
    """
    tokens = positions.shape[0]
    _check_sizes(
        tokens,
        num_decode_tokens,
        max_compressed_tokens,
        {"compress_ratio": compress_ratio, "block_size": block_size},
        {
            "token_to_req_indices": token_to_req_indices,
            "block_table": block_table,
            "slot_mapping": slot_mapping,
            "global_decode_buffer": global_decode_buffer,
            "decode_lens_buffer": decode_lens_buffer,
            "prefill_buffer": prefill_buffer,
        },
    )
    prefills = tokens - num_decode_tokens
    decode = global_decode_buffer[:num_decode_tokens]
    lens = decode_lens_buffer[:num_decode_tokens]
    prefill = prefill_buffer.view(-1)[: prefills * max_compressed_tokens]
    prefill = prefill.view(prefills, max_compressed_tokens)
    if tokens == 0:
        return decode, lens, prefill
    # a step without compressed tokens still has lengths to write
    c128a_metadata_kernel[(tokens, max(-(-max_compressed_tokens // config.n), 1))](
        global_decode_buffer,
        global_decode_buffer.stride(0),
        decode_lens_buffer,
        prefill_buffer,
        max_compressed_tokens,
        positions,
        compress_ratio,
        max_compressed_tokens,
        num_decode_tokens,
        token_to_req_indices,
        block_table,
        block_table.stride(0),
        block_size,
        slot_mapping,
        ALIGN=ALIGNMENT,
        BLOCK=config.n,
        **config.options(),
    )
    return decode, lens, prefill


def dispatch(
    positions: torch.Tensor,
    block_table: torch.Tensor,
    global_decode_buffer: torch.Tensor,
    prefill_buffer: torch.Tensor,
    max_compressed_tokens: int,
    *,
    config: Config | None = None,
) -> tuple[Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]], str]:
    """The kernel for a request: call it with stock's arguments, see `launch`.

    Args:
        positions: [T] int64.
        block_table: [requests, pages] int32.
        global_decode_buffer: [tokens, width] int32.
        prefill_buffer: [tokens, width] int32, contiguous.
        max_compressed_tokens: Widest row of this step.
        config: Asks for one configuration (benchmarks, tests).

    Returns:
        The callable and the reason for it.

    Raises:
        KernelError: The request is outside the contract, or on no device that can run it.
    """
    named = {
        "positions": positions,
        "block_table": block_table,
        "global_decode_buffer": global_decode_buffer,
        "prefill_buffer": prefill_buffer,
    }
    require(
        OP,
        named,
        positions=Wanted((None,), torch.int64),
        block_table=Wanted((None, None), torch.int32, "last"),
        global_decode_buffer=Wanted((None, None), torch.int32, "last"),
        prefill_buffer=Wanted((None, None), torch.int32),
    )
    width = global_decode_buffer.shape[1]
    if max_compressed_tokens > width:
        raise KernelError(
            f"{OP}: {max_compressed_tokens} compressed tokens do not fit a buffer row of {width}"
        )
    where = runnable(positions, OP, minimum=80)
    chosen, reason = (asked(config), "asked for") if config else choose(where)
    record(OP, f"triton {chosen.key}", reason)
    return partial(launch, config=chosen), reason
