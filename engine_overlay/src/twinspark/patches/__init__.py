"""The patches, one module a finding, in layers from cold boot to served token.

The modules import neither torch nor vLLM at their top: their records are also read where there is
no engine (documents, preflight, tests).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinspark.patching import Patch

MODULES = (
    "config.deepgemm_refusals",
    "config.hc_prenorm",
    "config.o_proj",
    "config.indexer_logits",
    "config.dspark_assertions",
    "platform.device_memory",
    "platform.startup_plan",
    "kv_layout.block_size",
    "kv_layout.layout",
    "allocator.block_zeroer",
    "allocator.recycled_blocks",
    "metadata.draft_width",
    "metadata.decode_boundary",
    "graphs.c128a_stride",
    "graphs.nan_argmax",
    "graphs.first_use",
    "executor.first_failure",
    "executor.exit_status",
    "executor.pair_liveness",
)


def load() -> tuple[Patch, ...]:
    """Records of all patches, in the order of the documents."""
    return tuple(import_module(f"{__name__}.{name}").PATCH for name in MODULES)
