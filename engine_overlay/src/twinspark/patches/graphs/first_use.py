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
            if not options.get("process_local_only"):
                run_steps(worker)

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


def run_steps(worker: Any) -> None:  # noqa: ANN401 - vLLM's
    """Dummy steps of the sizes for which stock compiles an mHC kernel each, on every rank alike.

    Stock's own warm-up calls the operation without its norm and its broadcast, as no layer does,
    and its dummy steps are the largest and those of the graphs: on a GB10 eight kinds of size were
    left to compile a kernel in a request (computed), 10 seconds and more each beside an H200.
    """
    from vllm.config import CUDAGraphMode  # noqa: PLC0415 - after the engine is there

    from twinspark.kernels import warmup  # noqa: PLC0415 - imports torch

    config = worker.vllm_config
    sizes = warmup.steps(config.scheduler_config.max_num_batched_tokens, mhc_shares(config))
    logger.info("twinspark kernels: steps of %s tokens, for stock's mHC kernels", sizes)
    began = time.monotonic()
    for tokens in sizes:
        start = time.monotonic()
        worker.model_runner._dummy_run(  # noqa: SLF001 - as gpu_worker.py:708 does
            tokens, cudagraph_runtime_mode=CUDAGraphMode.NONE, skip_eplb=True
        )
        spent = time.monotonic() - start
        if spent > SLOW_S:
            logger.info("twinspark kernels: a step of %d tokens took %.1f s", tokens, spent)
    logger.info("twinspark kernels: %d steps in %.1f s", len(sizes), time.monotonic() - began)


def mhc_shares(vllm_config: Any) -> Callable[[int], tuple[int, int]]:  # noqa: ANN401 - vLLM's
    """What stock's mHC kernels are compiled for, by a step's tiles: shares of one and four streams.

    Without DeepGEMM's support stock cuts the four streams' product into one share.
    """
    from vllm.model_executor.kernels.mhc.tilelang_kernels import (  # noqa: PLC0415 - needs a GPU
        compute_num_split,
    )
    from vllm.utils.deep_gemm import is_deep_gemm_supported  # noqa: PLC0415

    model = vllm_config.model_config.hf_text_config
    one, all_of_them = model.hidden_size, model.hidden_size * model.hc_mult
    split = is_deep_gemm_supported()

    def shares(tiles: int) -> tuple[int, int]:
        return (
            compute_num_split(64, one, tiles),
            compute_num_split(64, all_of_them, tiles) if split else 1,
        )

    return shares


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
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._dummy_run",
        "vllm.v1.worker.gpu.model_runner:GPUModelRunner._dummy_run",
        "vllm.model_executor.warmup.deepseek_v4_mhc_warmup:_warmup_layer_mhc",
        "vllm.model_executor.kernels.mhc.tilelang_kernels:compute_num_split",
        "vllm.model_executor.kernels.mhc.tilelang:mhc_pre_broadcast_tilelang",
        "vllm.model_executor.kernels.mhc.tilelang:mhc_fused_post_pre_tilelang",
    ),
    vllm=("0.27.1",),
    symptom="The first prefill, and the first of each new batch size, waits for a compiler: ten "
    "seconds on an H200 with an empty cache; one prompt of an odd length waited for over a minute.",
    cause="The dummy runs of gpu_worker.py:679 carry no attention metadata, so that the indexer is "
    "not reached, and see few sizes; kernel_warmup.py:99 knows stock's own kernels only, and of "
    "mHC warms the form without norm and broadcast (deepseek_v4_mhc_warmup.py:97), which no layer "
    "calls; TileLang compiles mHC for each number of shares, which follows the step's tokens.",
    fix="The overlay's kernels are declared so that what differs from step to step makes no kernel "
    "of its own, and all that are left run once before the graphs are captured, as do dummy steps "
    "of each size that mHC has a kernel for. What compiles "
    "later still is counted where stock's monitor logs it, the overlay's own apart (a fault).",
    upstream="0.27.1 has warm-ups for its own kernels and the monitor; nothing for a plugin's.",
    remove_when="The overlay has no Triton kernels (with w3, w4 and w5), or a plugin can register "
    "its own warm-up.",
    constraint="One cache root a release; nvcc and ptxas are slow on GB10's cores.",
    applies=selection.skip_reason,
    install=_install,
)
