"""Decode logits of the indexer over the paged cache in float64, from the definition."""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

import torch

PAGE = 64
DIM = 128


def unpack(cache: torch.Tensor, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of some pages and their scales.

    Args:
        cache: [blocks, 64, 1, 132] uint8: each page 64*128 e4m3 bytes, then 64 float32 scales.
        pages: [P] page ids.

    Returns:
        [P*64, 128] and [P*64], float64.
    """
    flat = torch.stack([cache[int(page)].reshape(-1) for page in pages])
    values = flat[:, : PAGE * DIM].contiguous().view(torch.float8_e4m3fn).double()
    scales = flat[:, PAGE * DIM :].contiguous().view(torch.float32).double()
    return values.view(-1, DIM), scales.view(-1)


def paged_mqa_logits(
    q: torch.Tensor,
    cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    max_keys: int,
) -> torch.Tensor:
    """`scale[n] * sum_h weights[r, h] * relu(q[r, h] . k[n])` for n below each row's length.

    Args:
        q: [B, next_n, 64, 128] float8_e4m3fn.
        cache: [blocks, 64, 1, 132] uint8.
        weights: [B*next_n, 64] float32.
        context_lens: [B, next_n] int32, keys that each row sees; no more than there are columns of
            the result, or keys in the pages of `block_table`.
        block_table: [B, pages] int32.
        max_keys: Columns of the result.

    Returns:
        [B*next_n, max_keys] float64, -inf from each row's length on.
    """
    batch, next_n = q.shape[:2]
    out = q.new_full((batch * next_n, max_keys), float("-inf"), dtype=torch.float64)
    for b in range(batch):
        for j in range(next_n):
            length = min(int(context_lens[b, j]), max_keys, block_table.shape[1] * PAGE)
            if length <= 0:
                continue
            keys, scales = unpack(cache, block_table[b, : -(-length // PAGE)])
            scores = torch.relu(q[b, j].double() @ keys[:length].T)
            logits = weights[b * next_n + j].double() @ scores
            out[b * next_n + j, :length] = scales[:length] * logits
    return out
