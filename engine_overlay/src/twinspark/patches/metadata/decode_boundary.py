"""#11: the three metadata builders must agree where decode ends; count it when they do not."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
import logging
import os
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("vllm.twinspark")

BUILDER = "vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder"
TARGET = f"{BUILDER}.build"
STRICT = "TWINSPARK_STRICT"
COUNTER = "decode_boundary_disagreements"


class BoundaryError(RuntimeError):
    """Two builders put the decode boundary at different tokens (TWINSPARK_STRICT=1 only)."""


def other_threshold(speculative_config: Any) -> int:  # noqa: ANN401 - vLLM's
    """Longest decode query of the SWA and C128A builders (sparse_swa.py:425, backend.py:675)."""
    if speculative_config is None:
        return 1
    factor = 2 if speculative_config.parallel_drafting else 1
    return int(1 + factor * speculative_config.num_speculative_tokens)


def observed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the indexer's `build`: compare its boundary with what the other two compute."""

    @functools.wraps(original)
    def build(  # the runners call it with keywords: the names are vLLM's
        self: Any,  # noqa: ANN401 - vLLM's
        common_prefix_len: int,
        common_attn_metadata: Any,  # noqa: ANN401 - vLLM's
        fast_build: bool = False,
    ) -> Any:  # noqa: ANN401 - vLLM's
        common = common_attn_metadata
        metadata = original(self, common_prefix_len, common, fast_build)
        # Up to the lower threshold all three take the whole batch for decode: nothing to compare.
        if common.max_query_len > self.decode_threshold and not _dummy(common):
            _compare(self, common, metadata.num_decode_tokens)
        return metadata

    return build


def _dummy(common: Any) -> bool:  # noqa: ANN401 - vLLM's
    """Whether the batch is no client's: long queries that nobody prefills (graph capture)."""
    prefilling = common.is_prefilling
    return prefilling is not None and not bool(prefilling.any())


def _compare(builder: Any, common: Any, indexer: int) -> None:  # noqa: ANN401 - vLLM's
    from vllm.v1.attention.backends.utils import split_decodes_and_prefills

    threshold = other_threshold(builder.vllm_config.speculative_config)
    others = split_decodes_and_prefills(common, decode_threshold=threshold)[2]
    if others == indexer:
        return
    text = (
        f"decode boundary: indexer {indexer} tokens (threshold {builder.decode_threshold}), SWA "
        f"and C128A {others} (threshold {threshold})"
    )
    if report.current().count(COUNTER) == 1:
        logger.warning("twinspark: %s; counted from here on", text)
    if os.environ.get(STRICT) == "1":
        raise BoundaryError(text)


def _install(edit: Edit) -> None:
    name = "DeepseekV32IndexerMetadataBuilder.build"
    edit.replace(name, observed(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("it has no indexer")


PATCH = Patch(
    id="11-decode-boundary",
    title="Builders disagree on the decode boundary",
    layer="metadata",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        f"{BUILDER}.__init__",
        "vllm.v1.attention.backends.mla.sparse_swa:DeepseekSparseSWAMetadataBuilder.__init__",
        "vllm.v1.attention.backend:AttentionMetadataBuilder._init_reorder_batch_threshold",
        "vllm.v1.attention.backends.utils:split_decodes_and_prefills",
    ),
    vllm=("0.27.1",),
    symptom="None seen in stock. A batch of decodes, an 8-token extend and a prefill gives the "
    "indexer 6 decode tokens, SWA and C128A 14.",
    cause="With DSpark the indexer's threshold is k+1 = 6 (mla/indexer.py:507), that of SWA and "
    "C128A 1+2k = 11. Row numbers are absolute on both sides, so no corruption was found.",
    fix="Observed, not changed: the boundary is compared in the indexer's build, disagreements are "
    "counted in the process report (batches of a graph capture are not), and TWINSPARK_STRICT=1 "
    "makes them errors. The indexer's threshold must not be raised: its offsets buffer has k+1.",
    upstream="Not aligned in 0.33.0 (SWA moved to max_decode_query_len in 0.31.0).",
    remove_when="One function gives all three builders their boundary.",
    constraint="Flattened speculative rows (no SM100 kernel on SM121) make row order matter.",
    applies=_applies,
    install=_install,
)
