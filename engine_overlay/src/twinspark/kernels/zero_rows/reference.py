"""Zeroing rows, from the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def zero_rows(cache: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """A copy of `cache` [blocks, row] with the rows `ids` zero and every other byte as it was."""
    out = cache.clone()
    out[ids.long()] = 0
    return out
