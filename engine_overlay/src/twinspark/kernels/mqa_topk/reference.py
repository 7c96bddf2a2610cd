"""Top-k of the indexer's prefill logits in float64, from the definition."""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

import torch

from twinspark.kernels.mqa_logits.reference import mqa_logits


def top_keys(logits: torch.Tensor, ks: torch.Tensor, ke: torch.Tensor, topk: int) -> torch.Tensor:
    """Each row's largest logits inside its bounds; of equal ones the first keys.

    Args:
        logits: [M, N] of any float type.
        ks: [M] int32, first key a row sees.
        ke: [M] int32, one past the last.
        topk: Keys to choose.

    Returns:
        [M, topk] int32: keys relative to `ks`, ascending, then -1 where a row sees fewer. NaN
        counts as the largest, or as the smallest where its sign is set.
    """
    out = torch.full((logits.shape[0], topk), -1, dtype=torch.int32, device=logits.device)
    for m in range(logits.shape[0]):
        row = logits[m, max(int(ks[m]), 0) : max(int(ke[m]), 0)].double()
        nan = torch.isnan(row)
        up = torch.where(nan, (~torch.signbit(row)).double() * 2 - 1, torch.zeros_like(row))
        order = torch.sort(torch.where(nan, 0.0, row), descending=True, stable=True).indices
        order = order[torch.sort(up[order], descending=True, stable=True).indices][:topk]
        out[m, : order.numel()] = order.sort().values.int()
    return out


def mqa_topk(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    """`top_keys` of the logits as `mqa_logits` defines them, both in float64.

    Args:
        q: [M, H, D] float8_e4m3fn, its scale folded into `weights`.
        k: [N, D] float8_e4m3fn.
        k_scale: [N] float32.
        weights: [M, H] float32.
        ks: [M] int32, first key a row sees.
        ke: [M] int32, one past the last.
        topk: Keys to choose.

    Returns:
        [M, topk] int32, as `top_keys`.
    """
    return top_keys(mqa_logits(q, k, k_scale, weights, ks, ke), ks, ke, topk)
