"""Which kernel serves a request, and why: explicit, raised when impossible, recorded once."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import torch

    from twinspark.kernels.config import Config

logger = logging.getLogger("vllm.twinspark")  # under vLLM's logger: its handlers print it

VARIABLE = "TWINSPARK_KERNELS"
H200 = "best over the shapes measured on an H200"  # why a configuration is chosen on sm_90
POWERS = tuple(1 << n for n in range(15))  # what a tile may measure


class Mode(StrEnum):
    """What `TWINSPARK_KERNELS` may say."""

    TRITON = "triton"  # this project's kernels (default)
    CHECK = "check"  # both, compared at every call and replay; the original's result is used
    DEEPGEMM = "deepgemm"  # an installed `deep_gemm`: untested on SM12x


class KernelError(RuntimeError):
    """A request for a kernel cannot be met; the text holds the shapes and what to do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision as the overlay report shows it."""

    op: str
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """The device a kernel would run on.

    Attributes:
        capability: Compute capability, as 90 or 121; 0 in the interpreter.
        processors: Multiprocessors.
    """

    capability: int
    processors: int

    @property
    def name(self) -> str:
        """For reasons: `interpreter`, `sm_90`, `sm_121`."""
        return f"sm_{self.capability}" if self.capability else "interpreter"


_recorded: dict[tuple[str, str], Choice] = {}


def requested(environ: Mapping[str, str] = os.environ) -> Mode:
    """The mode that the environment asks for.

    Raises:
        KernelError: The variable holds none of the modes.
    """
    value = environ.get(VARIABLE, Mode.TRITON.value)
    try:
        return Mode(value)
    except ValueError:
        names = ", ".join(Mode)
        raise KernelError(f"{VARIABLE}={value!r}: use one of {names}") from None


def record(op: str, kernel: str, reason: str) -> Choice:
    """Remember a decision for the overlay report and log it the first time it is made."""
    choice = Choice(op, kernel, reason)
    if _recorded.setdefault((op, kernel), choice) is choice:
        logger.info("twinspark kernels: %s -> %s (%s)", op, kernel, reason)
    return choice


def recorded() -> tuple[Choice, ...]:
    """Every decision this process has made, in order of first use."""
    return tuple(_recorded.values())


def forget() -> None:
    """Drop all recorded decisions (tests)."""
    _recorded.clear()


def interpreting(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU."""
    return environ.get("TRITON_INTERPRET", "0") == "1"


@cache
def _device(index: int) -> Target:
    import torch  # noqa: PLC0415 - only a worker has it

    properties = torch.cuda.get_device_properties(index)
    return Target(properties.major * 10 + properties.minor, properties.multi_processor_count)


def target(tensor: torch.Tensor, op: str) -> Target:
    """Where a request's tensors lie.

    Raises:
        KernelError: On the CPU outside the interpreter: there is no slow path to fall into.
    """
    if tensor.is_cuda:
        return _device(tensor.device.index or 0)
    if interpreting():
        return Target(0, 4)
    raise KernelError(
        f"{op}: {shape(tensor)} is on {tensor.device}; this kernel runs on a CUDA device "
        "(or, in tests, with TRITON_INTERPRET=1)"
    )


def runnable(tensor: torch.Tensor, op: str, minimum: int = 89) -> Target:
    """`target`, refusing a card older than `minimum` (89: the first with FP8 matrix instructions).

    Raises:
        KernelError: The card is older, or the tensors are on no card.
    """
    where = target(tensor, op)
    if where.capability and where.capability < minimum:
        raise KernelError(f"{op}: {where.name} is too old, sm_{minimum} is needed: {shape(tensor)}")
    return where


def shape(tensor: torch.Tensor) -> str:
    """Shape, strides and dtype, for error messages."""
    return f"{tuple(tensor.shape)} stride {tuple(tensor.stride())} {tensor.dtype}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a kernel's contract says about one argument.

    Attributes:
        shape: Sizes; None where any will do.
        dtype: Element type.
        layout: `all`: contiguous; `last`: contiguous in the last dimension; `any`.
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype
    layout: str = "all"

    def admits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is as wanted."""
        sizes = len(tensor.shape) == len(self.shape) and all(
            want is None or want == have
            for want, have in zip(self.shape, tensor.shape, strict=True)
        )
        if not sizes or tensor.dtype != self.dtype:
            return False
        if self.layout == "all":
            return bool(tensor.is_contiguous())
        return bool(self.layout == "any" or tensor.stride(-1) == 1 or tensor.numel() == 0)


def ranked(op: str, tensors: Mapping[str, torch.Tensor], **dimensions: int) -> None:
    """Refuse a tensor whose sizes cannot even be read by position; before `require`.

    Raises:
        KernelError: Names the argument, how many dimensions it must have, and every tensor's shape.
    """
    for name, count in dimensions.items():
        if tensors[name].dim() != count:
            have = "; ".join(f"{key} {shape(value)}" for key, value in tensors.items())
            raise KernelError(f"{op}: {name} must be of {count} dimensions; got {have}")


def admitted(op: str, config: Config, **allowed: Container[int]) -> Config:
    """A configuration that a caller asks for, if the kernel is right with it.

    Args:
        op: Operation.
        config: What is asked for.
        allowed: Values a field of it may have; warps and stages are looked at in any case.

    Returns:
        `config`.

    Raises:
        KernelError: Names the field that is off and what it may be.
    """
    rules: dict[str, Container[int]] = {"warps": POWERS[:6], "stages": range(1, 17)} | allowed
    for name, values in rules.items():
        if getattr(config, name) not in values:
            raise KernelError(
                f"{op}: {name}={getattr(config, name)} of {config.key} is not one of {values}"
            )
    return config


def require(op: str, tensors: Mapping[str, torch.Tensor], **wanted: Wanted) -> None:
    """Refuse a request that a kernel's contract does not cover.

    Raises:
        KernelError: Names the argument that is off, what it should be, and every tensor's shape.
    """
    for name, want in wanted.items():
        if not want.admits(tensors[name]):
            layout = {"all": ", contiguous", "last": ", contiguous in the last dimension"}
            sizes = ["any" if size is None else str(size) for size in want.shape]
            have = "; ".join(f"{key} {shape(value)}" for key, value in tensors.items())
            raise KernelError(
                f"{op}: {name} must be [{', '.join(sizes)}] {want.dtype}"
                f"{layout.get(want.layout, '')}; got {have}"
            )
