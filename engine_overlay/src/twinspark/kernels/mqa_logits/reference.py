"""Prefill logits of the indexer in float64, from the definition."""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

import torch


def mqa_logits(
    q: torch.Tensor,
    k: torch.Tensor,
    k_scale: torch.Tensor,
    weights: torch.Tensor,
    ks: torch.Tensor,
    ke: torch.Tensor,
) -> torch.Tensor:
    """`k_scale[n] * sum_h weights[m, h] * relu(q[m, h] . k[n])`, -inf outside [ks, ke).

    Args:
        q: [M, H, D] float8_e4m3fn, its scale folded into `weights`.
        k: [N, D] float8_e4m3fn.
        k_scale: [N] float32.
        weights: [M, H] float32.
        ks: [M] int32, first key a row sees.
        ke: [M] int32, one past the last.

    Returns:
        [M, N] float64.
    """
    keys = k.double()
    out = q.new_empty((q.shape[0], k.shape[0]), dtype=torch.float64)
    for m in range(q.shape[0]):
        scores = torch.relu(q[m].double() @ keys.T)
        out[m] = k_scale.double() * (weights[m].double() @ scores)
    n = torch.arange(k.shape[0], device=k.device)
    outside = (n < ks[:, None]) | (n >= ke[:, None])
    return out.masked_fill(outside, float("-inf"))
