"""Shared by the kernel tests: random FP8 data, poisoned outputs, buffers of untouched pages."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
NAN = float("nan")
# The interpreter multiplies FP8 exactly and adds in float32.
TOLERANCE = 1e-5
# It also truncates where a GPU rounds to bfloat16: up to 2^-8 a value.
BF16_TOLERANCE = 6e-3


def fp8(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Random float8_e4m3fn."""
    return (torch.randn(*shape) * scale).to(FP8)


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output in which every element is NaN until it is written."""
    return torch.full(shape, NAN, dtype=dtype)


def spread(tensor: torch.Tensor, stride: int, dim: int = 0) -> torch.Tensor:
    """A copy whose `dim` has a huge stride: pages in between are never touched, so cost nothing."""
    strides = list(tensor.stride())
    strides[dim] = stride
    size = stride * (tensor.shape[dim] - 1) + tensor.numel()
    out = torch.empty(size, dtype=tensor.dtype).as_strided(tensor.shape, strides)
    return out.copy_(tensor)


def relative(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative error in the Frobenius norm where the reference is finite; NaN where out is."""
    inside = torch.isfinite(reference)
    have, want = out.double()[inside], reference.double()[inside]
    return float((have - want).norm() / want.norm().clamp_min(1e-300))
