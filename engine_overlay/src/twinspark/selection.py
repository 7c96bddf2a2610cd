"""Between the patches and the kernels: who serves an operation here, and the word to the report.

`TWINSPARK_KERNELS` (see `twinspark.kernels.dispatch`) chooses between the overlay's kernels
(`triton`, the default), an installed `deep_gemm` (`deepgemm`), and both side by side (`check`).
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.kernels import dispatch

if TYPE_CHECKING:
    from types import ModuleType

    from twinspark.patching import Context

_noted = 0


@cache
def operation(name: str) -> ModuleType:
    """The package `twinspark.kernels.<name>`, imported on first use."""
    return import_module(f"twinspark.kernels.{name}")


def note() -> None:
    """Bring decisions that the kernels have made since the last call into the process report."""
    global _noted  # noqa: PLW0603 - one position in one process-wide list
    made = dispatch.recorded()
    for choice in made[_noted:]:
        report.current().kernel(choice.op, choice.kernel, choice.reason)
    _noted = len(made)


def launcher(name: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - each kernel's own
    """The kernel of an operation for these arguments; the decision goes into the report.

    Raises:
        KernelError: The kernel cannot serve the request; nothing slower steps in.
    """
    kernel, _ = operation(name).dispatch(*args, **options)
    note()
    return kernel


def skip_reason(context: Context) -> str | None:
    """Why the overlay's DeepGEMM replacements stay out of a process, or None.

    They come in on compute capability 12.x, where stock has nothing, and on another CUDA card only
    when `TWINSPARK_KERNELS` is set there (comparisons with the stock kernels).
    """
    mode = dispatch.requested()
    if mode is dispatch.Mode.DEEPGEMM:
        return "TWINSPARK_KERNELS=deepgemm: the installed deep_gemm serves (untested)"
    if context.platform == "cuda" and os.environ.get(dispatch.VARIABLE):
        return None
    return context.unless_sm12x("the stock kernels serve")


def checking() -> bool:
    """Whether both kernels are to run and be compared."""
    return dispatch.requested() is dispatch.Mode.CHECK
