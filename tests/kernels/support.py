"""Shared by the kernel tests: random FP8 data, poisoned outputs, buffers of untouched pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]

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


def compiling(program: str, *arguments: str) -> Any:
    """The JSON that a program prints last, where Triton compiles: the interpreter is a process's.

    Without a GPU, so that the program must name its target itself.
    """
    paths = [str(ROOT / "engine_overlay/src"), os.environ.get("PYTHONPATH", "")]
    environ = os.environ | {
        "TRITON_INTERPRET": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, env=environ, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
