"""#13: C128A index rows lie where the captured graph reads them, at capture and at replay."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

logger = logging.getLogger("vllm.twinspark")

MODULE = "vllm.models.deepseek_v4.sparse_mla"
TARGET = f"{MODULE}:build_c128a_topk_metadata"
STEP = f"{MODULE}:DeepseekV4FlashMLAMetadataBuilder._build_c128a_metadata"
BLOCK = 1024  # entries a program step; stock's own value (sparse_mla.py:353)


def written_bytes(decode_rows: int, context: int, buffer_width: int) -> dict[str, int]:
    """Bytes of decode index rows that one step writes.

    Args:
        decode_rows: Decode tokens of the step.
        context: Longest context of the batch, in tokens.
        buffer_width: Entries of a buffer row (max_model_len / 128, aligned to 128).

    Returns:
        `full_width` (what a fix that pins the width writes) and `narrow` (this patch).
    """
    compressed = max(context // 128, 1)
    active = min(max(1 << (compressed - 1).bit_length(), 128), buffer_width)
    return {"full_width": decode_rows * buffer_width * 4, "narrow": decode_rows * active * 4}


def at_buffer_stride(kernel: Any) -> Callable[..., Any]:  # noqa: ANN401 - a Triton kernel
    """`build_c128a_topk_metadata` with decode rows at the buffer's own stride.

    Args:
        kernel: Stock's `_build_c128a_topk_metadata_kernel`, which has always taken a row stride
            beside the number of entries to write.
    """

    def build_c128a_topk_metadata(  # noqa: PLR0913, PLR0917 - vLLM's signature
        positions: torch.Tensor,
        compress_ratio: int,
        num_decode_tokens: int,
        token_to_req_indices: torch.Tensor,
        block_table: torch.Tensor,
        block_size: int,
        slot_mapping: torch.Tensor,
        global_decode_buffer: torch.Tensor,
        decode_lens_buffer: torch.Tensor,
        prefill_buffer: torch.Tensor,
        max_compressed_tokens: int = 8192,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Stock's metadata; see `vllm.models.deepseek_v4.sparse_mla`.

        Returns:
            Decode rows `[D, W]`, full width and contiguous, of which the first
            `max_compressed_tokens` entries are written this step; lengths `[D]`, which bound what
            is read; prefill rows `[P, max_compressed_tokens]`, packed (prefill is never captured).
        """
        tokens = positions.shape[0]
        prefills = tokens - num_decode_tokens
        decode = global_decode_buffer[:num_decode_tokens]
        lens = decode_lens_buffer[:num_decode_tokens]
        prefill = prefill_buffer.view(-1)[: prefills * max_compressed_tokens]
        prefill = prefill.view(prefills, max_compressed_tokens)
        if tokens == 0:
            return decode, lens, prefill
        kernel[(tokens,)](
            global_decode_buffer,
            global_decode_buffer.stride(0),
            decode_lens_buffer,
            prefill_buffer,
            max_compressed_tokens,
            positions,
            compress_ratio,
            max_compressed_tokens,
            num_decode_tokens,
            token_to_req_indices,
            block_table,
            block_table.stride(0),
            block_size,
            slot_mapping,
            BLOCK_SIZE=BLOCK,
        )
        return decode, lens, prefill

    return build_c128a_topk_metadata


def watched(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`_build_c128a_metadata` that logs each new row stride of a step's decode rows, once.

    It looks at what the step really carries, whoever built it: the guard reads these lines.
    """
    seen: set[int] = set()

    @functools.wraps(original)
    def _build_c128a_metadata(
        self: Any,  # noqa: ANN401 - vLLM's builder
        *args: Any,  # noqa: ANN401 - a step's metadata
        **named: Any,  # noqa: ANN401 - a step's metadata
    ) -> dict[str, Any]:
        found = original(self, *args, **named)
        rows = found.get("c128a_global_decode_topk_indices")
        if rows is not None and rows.stride(0) not in seen:
            seen.add(rows.stride(0))
            logger.info("twinspark: C128A decode rows, topk_width=%d", rows.stride(0))
            report.current().fact("c128a_widths", sorted(seen))
        return found

    return _build_c128a_metadata


def _install(edit: Edit) -> None:
    step = "DeepseekV4FlashMLAMetadataBuilder._build_c128a_metadata"
    edit.replace(step, watched(edit.original(step)))
    kernel = edit.original("_build_c128a_topk_metadata_kernel")
    edit.replace("build_c128a_topk_metadata", at_buffer_stride(kernel))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("there are no CUDA graphs")


PATCH = Patch(
    id="13-c128a-stride",
    title="Captured and replayed row strides differ",
    layer="graphs",
    targets=(TARGET, STEP),
    upstream_sha256=pinned(
        TARGET,
        STEP,
        f"{MODULE}:_build_c128a_topk_metadata_kernel",
        f"{MODULE}:DeepseekV4FlashMLAMetadataBuilder.__init__",
    ),
    vllm=("0.27.1",),
    symptom="Verification rows lose all C128A context on a fresh server, and read other requests' "
    "slots on a warm one: low acceptance, soft answers alone, foreign text beside neighbours.",
    cause="sparse_mla.py:264-341 packs decode rows at a width that follows the batch; a FULL graph "
    "has the width of max_model_len (8192 at 1M) baked in as row stride. Only global row 0 fits.",
    fix="Decode rows at the buffer's stride, always; only the active prefix is written, lengths "
    "bound the reads. The returned view is full width, since the SM12x kernel has no stride "
    "argument. Prefill rows stay packed. Each new stride of a step's decode rows is logged once "
    "(`topk_width=`), for the guard.",
    upstream="Came with #50004 (0.27.0); reverted by #51318 (0.28.0); adaptive width returned "
    "safely with #52823 (0.29.0), where SM12x keeps full width.",
    remove_when="Decode rows returned for a short and a long batch have equal stride.",
    constraint="FlashInfer's SM120 decode takes the row stride from the width "
    "(decode_dsv4_kernel.cuh:253,435).",
    applies=_applies,
    install=_install,
)
