"""The overlay's kernels are compiled before the engine serves, and a later compilation is told."""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any

from twinspark import report, selection
from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("vllm.twinspark")

WARMUP = "vllm.v1.worker.gpu_worker:kernel_warmup"
EVENT = "vllm.utils.jit_monitor:_handle_jit_event"
TRITON_EVENT = "vllm.utils.jit_monitor:_log_triton_jit_compile"
SLOW_S = 2.0  # a call that took longer has compiled something worth a line


def warmed(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `kernel_warmup`: stock's warm-up, then each of the overlay's kernels.

    It runs in every worker, between loading and the capture of graphs: from here on the paged
    logits know how many rows a request has.
    """

    @functools.wraps(original)
    def kernel_warmup(worker: Any, **options: Any) -> None:  # noqa: ANN401 - vLLM's
        original(worker, **options)
        from twinspark.kernels import warmup  # noqa: PLC0415 - imports torch

        sizes = warmup.sizes_of(worker.vllm_config)
        if sizes is not None:
            selection.expect_rows(sizes.rows_per_request)
            compile_all(sizes, worker.device)

    return kernel_warmup


def compile_all(sizes: Any, device: Any) -> None:  # noqa: ANN401 - no torch at import
    """Run every call of `twinspark.kernels.warmup`; the log says how far it has come.

    Raises:
        KernelError: A kernel cannot serve this card, which the first request would have met.
    """
    from twinspark.kernels import warmup  # noqa: PLC0415 - imports torch

    began, count = time.monotonic(), 0
    for count, case in enumerate(warmup.cases(sizes, device), start=1):
        start = time.monotonic()
        launch = selection.launcher(case.op, *case.arguments, **case.hints)
        launch(*case.arguments, *case.more)
        spent = time.monotonic() - start
        if spent > SLOW_S:
            logger.info("twinspark kernels: %s compiled in %.1f s (call %d)", case.op, spent, count)
    logger.info("twinspark kernels: %d calls warm in %.1f s", count, time.monotonic() - began)


def counted(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the monitor's `_handle_jit_event`, which is called for what compiles after start-up."""

    @functools.wraps(original)
    def _handle_jit_event(**event: Any) -> None:  # noqa: ANN401 - vLLM's
        report.current().count("late_compilations")
        original(**event)

    return _handle_jit_event


def ours_apart(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `_log_triton_jit_compile`, the one step of the monitor that knows a kernel's module."""

    @functools.wraps(original)
    def _log_triton_jit_compile(fn_name: str, kwargs: Any) -> None:  # noqa: ANN401 - Triton's
        module = str(getattr(kwargs.get("fn"), "module", ""))
        if module.startswith("twinspark."):
            report.current().count("overlay_late_compilations")
        original(fn_name, kwargs)

    return _log_triton_jit_compile


def _install(edit: Edit) -> None:
    if edit.module.__name__ == "vllm.v1.worker.gpu_worker":
        edit.replace("kernel_warmup", warmed(edit.original("kernel_warmup")))
        return
    for name, wrap in (("_handle_jit_event", counted), ("_log_triton_jit_compile", ours_apart)):
        edit.replace(name, wrap(edit.original(name)))


PATCH = Patch(
    id="first-use",
    title="Kernels are compiled inside a request",
    layer="graphs",
    targets=(WARMUP, EVENT, TRITON_EVENT),
    upstream_sha256=pinned(
        WARMUP,
        EVENT,
        TRITON_EVENT,
        "vllm.v1.worker.gpu_worker:Worker.compile_or_warm_up_model",
        "vllm.utils.jit_monitor:_setup_triton_jit_hook",
    ),
    vllm=("0.27.1",),
    symptom="The first prefill, and the first of each new batch size, waits for a compiler: ten "
    "seconds on an H200 with an empty cache.",
    cause="The dummy runs of gpu_worker.py:679 carry no attention metadata, so that the indexer is "
    "not reached, and see few sizes; kernel_warmup.py:83 knows stock's own kernels only.",
    fix="The overlay's kernels are declared so that what differs from step to step makes no kernel "
    "of its own, and all that are left run once before the graphs are captured. What compiles "
    "later still is counted where stock's monitor logs it, the overlay's own apart (a fault).",
    upstream="0.27.1 has warm-ups for its own kernels and the monitor; nothing for a plugin's.",
    remove_when="The overlay has no Triton kernels (with w3, w4 and w5), or a plugin can register "
    "its own warm-up.",
    constraint="One cache root a release; nvcc and ptxas are slow on GB10's cores.",
    applies=selection.skip_reason,
    install=_install,
)
