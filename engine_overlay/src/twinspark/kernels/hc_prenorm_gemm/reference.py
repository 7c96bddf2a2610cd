"""Hyper-connection product and sum of squares in float64, from the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def hc_prenorm_gemm(x: torch.Tensor, fn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`x @ fn.T` and the sum of each row's squares.

    Args:
        x: [M, K] bfloat16.
        fn: [24, K] float32.

    Returns:
        [M, 24] and [M], float64: what the splits of the kernel's outputs add up to.
    """
    wide = x.double()
    return wide @ fn.double().T, wide.square().sum(-1)
