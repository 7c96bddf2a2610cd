"""W5 / #10 hook: the indexer's logits, prefill and paged, and the schedule that goes with them."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from typing import TYPE_CHECKING, Any

from twinspark import selection
from twinspark.kernels.dispatch import KernelError, shape
from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

CONSUMER = "vllm.model_executor.layers.sparse_attn_indexer"
PREFILL = f"{CONSUMER}:fp8_fp4_mqa_logits"
PAGED = f"{CONSUMER}:fp8_fp4_paged_mqa_logits"
SCHEDULE = "vllm.v1.attention.backends.mla.indexer:get_paged_mqa_logits_metadata"


def _fp8_only(op: str, q: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    values, scale = q
    if scale is not None:
        raise KernelError(
            f"{op}: takes FP8 queries, whose scale is in the weights; FP4 needs SM100; "
            f"got q {shape(values)}, scale {shape(scale)}"
        )
    return values


def prefill(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve `fp8_fp4_mqa_logits`; the same kernel whatever `clean_logits` says."""

    @functools.wraps(original)
    def fp8_fp4_mqa_logits(  # noqa: PLR0913, PLR0917 - vLLM's signature
        q: tuple[torch.Tensor, torch.Tensor | None],
        kv: tuple[torch.Tensor, torch.Tensor],
        weights: torch.Tensor,
        cu_seqlen_ks: torch.Tensor,
        cu_seqlen_ke: torch.Tensor,
        clean_logits: bool = False,
    ) -> torch.Tensor:
        """Logits `[M, N]` float32 of queries `[M, 64, 128]` against keys `[N, 128]`."""
        values = _fp8_only("mqa_logits", q)
        arguments = (values, *kv, weights, cu_seqlen_ks, cu_seqlen_ke)
        ours: torch.Tensor = selection.launcher("mqa_logits", *arguments)(
            *arguments, clean_logits=clean_logits
        )
        if not selection.checking():
            return ours
        theirs: torch.Tensor = original(
            q, kv, weights, cu_seqlen_ks, cu_seqlen_ke, clean_logits=clean_logits
        )
        from twinspark.kernels import agreement

        agreement.logits("mqa_logits", ours, theirs, cu_seqlen_ks, cu_seqlen_ke)
        selection.settle()
        return theirs

    return fp8_fp4_mqa_logits


def paged(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve `fp8_fp4_paged_mqa_logits`."""

    @functools.wraps(original)
    def fp8_fp4_paged_mqa_logits(  # noqa: PLR0913, PLR0917 - vLLM's signature
        q: tuple[torch.Tensor, torch.Tensor | None],
        kv_cache: torch.Tensor,
        weights: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor,
        schedule_metadata: torch.Tensor,
        max_model_len: int,
        clean_logits: bool = False,
    ) -> torch.Tensor:
        """Logits `[B * next_n, max_model_len]` float32 against the pages of each request."""
        values = _fp8_only("paged_mqa_logits", q)
        arguments = (values, kv_cache, weights, context_lens, block_tables)
        launch = selection.launcher(
            "paged_mqa_logits", *arguments, rows_per_request=selection.rows_per_request()
        )
        ours: torch.Tensor = launch(*arguments, max_model_len, clean_logits=clean_logits)
        if not selection.checking():
            return ours
        theirs: torch.Tensor = original(
            q, kv_cache, weights, context_lens, block_tables, schedule_metadata,
            max_model_len=max_model_len, clean_logits=clean_logits,
        )  # fmt: skip
        from twinspark.kernels import agreement

        lens = context_lens.flatten()
        agreement.logits("paged_mqa_logits", ours, theirs, lens.new_zeros(lens.shape), lens)
        selection.settle()
        return theirs

    return fp8_fp4_paged_mqa_logits


def schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve `get_paged_mqa_logits_metadata`: the overlay's kernel schedules itself."""

    @functools.wraps(original)
    def get_paged_mqa_logits_metadata(
        context_lens: torch.Tensor, block_size: int, num_sms: int
    ) -> torch.Tensor:
        """A zero that fills the builder's buffer; DeepGEMM's schedule in mode `check`."""
        if selection.checking():
            selection.settle()  # every step comes by here, also when a graph makes the comparisons
            return original(context_lens, block_size, num_sms)
        return context_lens.new_zeros(())

    return get_paged_mqa_logits_metadata


def _install(edit: Edit) -> None:
    if edit.module.__name__ == CONSUMER:
        edit.replace("fp8_fp4_mqa_logits", prefill(edit.original("fp8_fp4_mqa_logits")))
        edit.replace("fp8_fp4_paged_mqa_logits", paged(edit.original("fp8_fp4_paged_mqa_logits")))
    else:
        name = "get_paged_mqa_logits_metadata"
        edit.replace(name, schedule(edit.original(name)))


PATCH = Patch(
    id="w5-indexer-logits",
    title="The indexer's logits have no SM120 kernel",
    layer="config",
    targets=(PREFILL, PAGED, SCHEDULE),
    upstream_sha256=pinned(
        PREFILL,
        PAGED,
        SCHEDULE,
        f"{CONSUMER}:sparse_attn_indexer",
        "vllm.utils.deep_gemm:fp8_fp4_mqa_logits",
        "vllm.utils.deep_gemm:fp8_fp4_paged_mqa_logits",
        "vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder.build",
    ),
    vllm=("0.27.1",),
    symptom="'Unsupported architecture' when the first decode metadata is built; in a fork with a "
    "torch fallback, minutes for a prefill chunk (#10).",
    cause="mla/indexer.py:950 and sparse_attn_indexer.py:500,603 know DeepGEMM or an error.",
    fix="The consumers' names are served by tiled kernels for prefill and paged decode, the same "
    "ones whatever clean_logits says, with no slow path behind them.",
    upstream="SM120 kernels came with #52035 (0.28.0).",
    remove_when="The vendored DeepGEMM has SM120 kernels (0.28.0).",
    constraint="SM121 has no kernel for them in DeepGEMM 2.6.1.",
    applies=selection.skip_reason,
    install=_install,
)
