"""What the benchmark cases share: gates, anchors, a case made concrete."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from shapes import rotations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shapes import Shape

    from twinspark.kernels.config import Config

CUDA = "cuda"
FP8 = torch.float8_e4m3fn
L2_TWICE = 128 << 20
NAN = float("nan")
FP8_LIMIT = 3e-4  # Hopper adds FP8 products in about 14 bits: DeepGEMM is 1.3e-4 off likewise
TWO_TERMS_LIMIT = 3e-5  # the mixing matrix as two bfloat16 terms
SQUARES_LIMIT = 1e-5
BF16_LIMIT = 4e-3  # a bfloat16 result steps by 2^-8


class RedGateError(AssertionError):
    """A kernel's result is not the reference's."""


@dataclass(slots=True)
class Bench:
    """One case made concrete.

    Attributes:
        kernels: Ours by name: lists of calls over rotated inputs.
        anchors: The others', likewise.
        chosen: Names in `kernels` of what dispatch took by itself.
        ungraphed: Names in `anchors` that are timed outside a CUDA graph.
    """

    kernels: dict[str, list[Callable[[], Any]]] = field(default_factory=dict)
    anchors: dict[str, list[Callable[[], Any]]] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    ungraphed: set[str] = field(default_factory=set)

    def add(
        self, config: Config | None, reason: str, calls: Sequence[Callable[[], Any]], more: str = ""
    ) -> None:
        """Add a kernel of ours: `config` as asked for, or None for what dispatch takes itself."""
        name = (config.key if config else reason) + more
        self.kernels[name] = list(calls)
        if config is None:
            self.chosen.add(name)

    def add_memset(self, targets: Sequence[torch.Tensor]) -> None:
        """Add a memset as the anchor, in a graph and outside: a graph's node may be the slower."""
        calls = [target.zero_ for target in targets]
        self.anchors |= {"memset": calls, "memset outside a graph": calls}
        self.ungraphed.add("memset outside a graph")


def sets(shape: Shape) -> int:
    """Sets of inputs and outputs that one case rotates over, so that the L2 holds none of them."""
    return rotations(shape.bytes, L2_TWICE)


def deep_gemm() -> Any:  # noqa: ANN401 - a module without types
    """DeepGEMM, or None where it is not installed."""
    try:
        import deep_gemm as module  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return module


def relative(out: torch.Tensor, reference: torch.Tensor, limit: float) -> float:
    """Relative error in the Frobenius norm over what the reference defines.

    Raises:
        RedGateError: It is above `limit` or NaN.
    """
    inside = torch.isfinite(reference)
    have, want = out.double()[inside], reference.double()[inside]
    error = float((have - want).norm() / want.norm().clamp_min(1e-300))
    if not error <= limit:
        raise RedGateError(f"relative error {error:.3e} is above {limit:.0e}")
    return error


def written_inside(out: torch.Tensor, reference: torch.Tensor) -> None:
    """Refuse logits that were written where they should not be, or not where they should.

    Args:
        out: [M, >= N], NaN wherever nothing was written.
        reference: [M, N], -inf wherever nothing should be.

    Raises:
        RedGateError: The two disagree somewhere.
    """
    width = reference.shape[1]
    wrong = (torch.isnan(out[:, :width]) != torch.isinf(reference)).sum()
    wrong += (~torch.isnan(out[:, width:])).sum()
    if int(wrong):
        raise RedGateError(f"{int(wrong)} logits were written outside the bounds, or not inside")
