"""Between the patches and the kernels: who serves an operation here, and the word to the report.

`TWINSPARK_KERNELS` (see `twinspark.kernels.dispatch`) chooses between the overlay's kernels
(`triton`, the default), an installed `deep_gemm` (`deepgemm`), and both side by side (`check`).
"""

from __future__ import annotations

import logging
import os
import time
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.kernels import dispatch

if TYPE_CHECKING:
    from types import ModuleType

    from twinspark.patching import Context

logger = logging.getLogger("vllm.twinspark")

QUIET_S = 5.0  # the ledgers are read no oftener while a server serves: each look waits for the GPU
# The indexer's two share the counter that the guards know.
COUNTERS = {
    "mqa_logits": "mqa_logits_disagreements",
    "paged_mqa_logits": "mqa_logits_disagreements",
    "hc_prenorm_gemm": "hc_prenorm_disagreements",
    "fp8_o_proj": "o_proj_disagreements",
}

_noted = 0
_rows_per_request: int | None = None
_settled = float("-inf")
_counted: dict[str, int] = {}


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


def expect_rows(count: int) -> None:
    """Set how many adjacent query rows of a decode step are one request's: its drafts and one more.

    Stock flattens them (`next_n` = 1), so that no argument of a call says it.
    """
    global _rows_per_request  # noqa: PLW0603 - one engine in one process
    _rows_per_request = count


def rows_per_request() -> int | None:
    """What `expect_rows` has said; None before the engine's configuration is known."""
    return _rows_per_request


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


def settle(quiet_s: float = QUIET_S) -> None:
    """Bring what mode `check` has compared into the report; one line for an operation that is off.

    Does nothing inside a graph capture, which cannot read back, or too soon after the last time.

    Args:
        quiet_s: Seconds since the last time.
    """
    global _settled  # noqa: PLW0603 - one time in one process
    from twinspark.kernels import agreement  # noqa: PLC0415 - imports torch

    if time.monotonic() - _settled < quiet_s or agreement.capturing():
        return
    with report.current().batch():
        for seen in agreement.settle():
            report.current().agreement(seen.op, seen.as_dict())
            new = seen.disagreements - _counted.get(seen.op, 0)
            if new and seen.op not in _counted:
                logger.warning("twinspark check: over the bound: %s", seen)
            if new:
                report.current().count(COUNTERS[seen.op], new)
                _counted[seen.op] = seen.disagreements
    _settled = time.monotonic()
