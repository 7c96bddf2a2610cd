"""Which kernel an operation takes: chosen once a process, with its reason in the report.

`TWINSPARK_KERNELS` says who serves the operations that a stock vLLM 0.27.1 has no SM12x code for:

* `triton` (default): the overlay's own kernels;
* `deepgemm`: an installed `deep_gemm` package with SM120 kernels; ours stay out (untested);
* `check`: ours beside the stock ones, where both exist; the stock result is used.
"""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinspark import report

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TWINSPARK_KERNELS"
MODES = ("triton", "deepgemm", "check")


def mode() -> str:
    """Mode asked for by the environment.

    Raises:
        ValueError: It is none of `MODES`.
    """
    chosen = os.environ.get(VARIABLE) or "triton"
    if chosen not in MODES:
        raise ValueError(f"{VARIABLE}={chosen!r}: must be one of {', '.join(MODES)}")
    return chosen


@functools.cache
def kernel(op: str, otherwise: str | None = None) -> Callable[..., Any] | None:
    """The overlay's kernel of an operation.

    Args:
        op: Name of a package under `twinspark.kernels`.
        otherwise: What serves the operation when there is no kernel; None when nothing can.

    Returns:
        The kernel, or None when `otherwise` serves.

    Raises:
        RuntimeError: There is no kernel and nothing else that could serve.
    """
    try:
        found, reason = import_module(f"twinspark.kernels.{op}").dispatch()
    except (ImportError, AttributeError) as error:
        found, reason = None, f"no kernel: {error}"
    if found is None and otherwise is None:
        raise RuntimeError(f"{op}: {reason}; set {VARIABLE}=deepgemm if its package is installed")
    name = getattr(found, "__qualname__", None) or str(otherwise)
    report.current().kernel(op, f"twinspark.{name}" if found else name, reason)
    return found  # type: ignore[no-any-return]  # the kernels' contract
