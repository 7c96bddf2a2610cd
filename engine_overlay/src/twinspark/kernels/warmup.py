"""Calls that compile every kernel of the overlay an engine will need, on tensors of their own.

Triton compiles once for each set of constants and for each pattern of arguments that are 1, or
multiples of 16, or pointers on 16 B. The kernels are declared so that what differs from step to
step (rows, keys, the bounds' offset) makes no pattern of its own; what is left are the
configurations that a size chooses and the powers of two that the paged logits count their rows in.
Sizes that stay the same while an engine lives need only the right pattern here, not its value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from twinspark.kernels import fp8_o_proj, hc_prenorm_gemm
from twinspark.kernels.fp8_o_proj.kernel import SCALE_BLOCK
from twinspark.kernels.hc_prenorm_gemm.kernel import MIXES
from twinspark.kernels.paged_mqa_logits.kernel import HEAD_DIM, HEADS, PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

DEPTH = 512  # of the hyper-connection's product: any multiple of 16 makes the same kernel
SPLITS = (1, 4)  # shares of that product, one on each side of where the configuration changes
# Stock's mHC kernels are compiled for a number of shares, which it counts by tiles of this many
# tokens (mhc/tilelang.py:172,351,528@0.27.1); up to 16 tokens it has two kernels of their own.
MHC_TILE, MHC_FEW = 64, (1, 8)
GROUPS, RANKS = 2, SCALE_BLOCK  # of the o-projection: likewise any


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an engine's configuration says about the calls to come.

    Attributes:
        decode_rows: Most query rows of a decode step.
        o_proj_depth: Depth of a group of the o-projection: heads a group times head size.
        rows_per_request: Query rows of one request in a decode step: its drafts and one more.
    """

    decode_rows: int
    o_proj_depth: int
    rows_per_request: int


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Attributes:
        op: Operation, a package of `twinspark.kernels`.
        arguments: What its `dispatch` takes.
        more: What the kernel takes after them.
        hints: What `dispatch` takes by name.
    """

    op: str
    arguments: tuple[torch.Tensor, ...]
    more: tuple[int, ...] = ()
    hints: dict[str, int] = field(default_factory=dict)


def cases(sizes: Sizes, device: torch.device | str) -> Iterator[Case]:
    """Every call that compiles something new, small enough to take no time once compiled.

    Args:
        sizes: The engine's.
        device: Where its kernels run.

    Yields:
        The calls; each one's tensors are made as it is asked for, at most some 10 MB.
    """

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    def fp8(*shape: int) -> torch.Tensor:
        return zeros(*shape, dtype=torch.uint8).view(torch.float8_e4m3fn)

    def i32(*shape: int) -> torch.Tensor:
        return zeros(*shape, dtype=torch.int32)

    bound = i32(1)
    keys = fp8(PAGE, HEAD_DIM), zeros(PAGE)
    yield Case("mqa_logits", (fp8(1, HEADS, HEAD_DIM), *keys, zeros(1, HEADS), bound, bound))
    cache = zeros(1, PAGE, 1, HEAD_DIM + 4, dtype=torch.uint8)
    for rows in powers_up_to(sizes.decode_rows):
        q, weights = fp8(rows, 1, HEADS, HEAD_DIM), zeros(rows, HEADS)
        arguments = (q, cache, weights, i32(rows, 1), i32(rows, 1))
        # one: what a call takes that no configuration has told of the drafts
        for each in sorted({1, sizes.rows_per_request}):
            hints = {"rows_per_request": each}
            yield Case("paged_mqa_logits", arguments, (PAGE,), hints)
    fn = zeros(MIXES, DEPTH)
    for rows in one_each(hc_prenorm_gemm.ONE_TILE, hc_prenorm_gemm.FEW_ROWS):
        x = zeros(rows, DEPTH, dtype=torch.bfloat16)
        for splits in SPLITS:
            out = zeros(splits, rows, MIXES), zeros(splits, rows)
            yield Case("hc_prenorm_gemm", (x, fn, *out))
    blocks = sizes.o_proj_depth // SCALE_BLOCK
    weight = fp8(GROUPS, RANKS, sizes.o_proj_depth), zeros(GROUPS, 1, blocks)
    for rows in one_each(fp8_o_proj.FEW_TOKENS, fp8_o_proj.SOME_TOKENS):
        # as the engine's quantisation leaves them: groups outermost, scales with tokens innermost
        x = fp8(GROUPS, rows, sizes.o_proj_depth).transpose(0, 1)
        scale = zeros(GROUPS, blocks, rows).permute(2, 0, 1)
        out = zeros(rows, GROUPS, RANKS, dtype=torch.bfloat16)
        yield Case("fp8_o_proj", (x, scale, *weight, out))


def steps(most: int, shares: Callable[[int], Hashable]) -> list[int]:
    """Sizes of dummy steps after which stock's mHC kernels are compiled for every step to come.

    Args:
        most: Most tokens of a step.
        shares: What the kernels are compiled for, by the number of tiles of a step.

    Returns:
        Tokens, ascending: the fewest tiles of each kind, and two sizes of a few tokens.
    """
    first: dict[Hashable, int] = {}
    for tiles in range(1, -(-most // MHC_TILE) + 1):
        first.setdefault(shares(tiles), min(tiles * MHC_TILE, most))
    return sorted({tokens for tokens in (*MHC_FEW, *first.values()) if tokens <= most})


def powers_up_to(rows: int) -> list[int]:
    """Powers of two up to the first that is not below `rows`."""
    return [1 << n for n in range(max(rows - 1, 0).bit_length() + 1)]


def one_each(*limits: int) -> list[int]:
    """One size for each of the ranges that the limits make; a limit belongs to the range below."""
    return [1, *(limit + 1 for limit in limits)]


def sizes_of(vllm_config: Any) -> Sizes | None:  # noqa: ANN401 - vLLM's
    """What a vLLM configuration says, or None for a model that has none of these operations."""
    model = vllm_config.model_config.hf_text_config
    if not hasattr(model, "o_groups"):
        return None
    drafts = getattr(vllm_config.speculative_config, "num_speculative_tokens", None) or 0
    # the indexer takes up to 2k+1 tokens of a request for a decode (finding 11)
    decode = vllm_config.scheduler_config.max_num_seqs * (2 * drafts + 1)
    captured = max(vllm_config.compilation_config.cudagraph_capture_sizes or [0])
    depth = model.num_attention_heads * model.head_dim // model.o_groups
    return Sizes(max(decode, captured), depth, drafts + 1)
