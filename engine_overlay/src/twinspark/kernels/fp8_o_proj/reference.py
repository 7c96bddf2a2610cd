"""Grouped output projection in float64, from the definition."""

from __future__ import annotations

import torch


def fp8_o_proj(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """`einsum("tgk,grk->tgr")` of the dequantized operands.

    Args:
        x: [T, G, K] float8_e4m3fn.
        x_scale: [T, G, K/128] float32.
        weight: [G, R, K] float8_e4m3fn.
        weight_scale: [G, R/128, K/128] float32.

    Returns:
        [T, G, R] float64.
    """
    left = x.double() * x_scale.double().repeat_interleave(128, -1)
    blocks = weight_scale.double().repeat_interleave(128, -1).repeat_interleave(128, -2)
    return torch.einsum("tgk,grk->tgr", left, weight.double() * blocks)
