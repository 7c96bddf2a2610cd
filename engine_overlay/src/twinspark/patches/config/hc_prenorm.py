"""W3 hook: the hyper-connection's pre-norm product, which stock sends to DeepGEMM everywhere."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from twinspark import selection
from twinspark.kernels.dispatch import KernelError, shape
from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

TARGET = "vllm.utils.deep_gemm:tf32_hc_prenorm_gemm"
TILELANG = "vllm.model_executor.kernels.mhc.tilelang"


def served(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve `tf32_hc_prenorm_gemm` by the overlay's kernel; compare with it in mode `check`."""

    @functools.wraps(original)
    def tf32_hc_prenorm_gemm(
        x: torch.Tensor, fn: torch.Tensor, out: torch.Tensor, sqrsum: torch.Tensor, num_split: int
    ) -> None:
        """Write `x @ fn.T` and the rows' sums of squares, in `num_split` shares.

        Args:
            x: `[T, K]` or `[T, H, K / H]` bfloat16.
            fn: `[24, K]` float32.
            out: `[num_split, T, 24]` float32, written.
            sqrsum: `[num_split, T]` float32, written.
            num_split: Shares; out's first dimension.

        Raises:
            KernelError: The kernel cannot serve the request.
        """
        if out.shape[:1] != (num_split,):
            raise KernelError(
                f"hc_prenorm_gemm: {num_split} shares into out {shape(out)}; x {shape(x)}"
            )
        flat = x.flatten(1) if x.dim() > 1 else x
        launch = selection.launcher("hc_prenorm_gemm", flat, fn, out, sqrsum)
        if not selection.checking():
            launch(flat, fn, out, sqrsum)
            return
        from twinspark.kernels import agreement  # noqa: PLC0415 - imports torch

        ours, square = out.new_empty(out.shape), sqrsum.new_empty(sqrsum.shape)
        launch(flat, fn, ours, square)
        original(x, fn, out, sqrsum, num_split)
        # The shares may be cut elsewhere; what the consumer adds up must agree.
        agreement.values(
            "hc_prenorm_gemm", (ours.sum(0), out.sum(0)), (square.sum(0), sqrsum.sum(0))
        )
        selection.settle()

    return tf32_hc_prenorm_gemm


def _install(edit: Edit) -> None:
    name = "tf32_hc_prenorm_gemm"
    edit.replace(name, served(edit.original(name)))


PATCH = Patch(
    id="w3-hc-prenorm",
    title="The pre-norm product has no SM120 kernel",
    layer="config",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        f"{TILELANG}:mhc_pre_broadcast_tilelang",
        f"{TILELANG}:mhc_pre_tilelang",
        f"{TILELANG}:mhc_fused_post_pre_tilelang",
    ),
    vllm=("0.27.1",),
    symptom="'Unsupported architecture' from DeepGEMM in the first forward pass, whatever "
    "VLLM_USE_DEEP_GEMM says.",
    cause="mhc/tilelang.py:372-380 calls tf32_hc_prenorm_gemm without asking "
    "is_deep_gemm_supported(), as its siblings do.",
    fix="The overlay's kernel serves the call. All three consumers import the name inside the "
    "function, at each call, so this is the one binding there is; it is in no torch library.",
    upstream="Still unguarded in 0.29.0; SM120 kernels came with #52035 (0.28.0).",
    remove_when="The vendored DeepGEMM has SM120 kernels (0.28.0).",
    constraint="SM121 has no kernel for it in DeepGEMM 2.6.1.",
    applies=selection.skip_reason,
    install=_install,
)
