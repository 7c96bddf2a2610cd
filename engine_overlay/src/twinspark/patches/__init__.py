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
    "allocator.block_zeroer",
    "executor.exit_status",
)


def load() -> tuple[Patch, ...]:
    """Records of all patches, in the order of the documents."""
    return tuple(import_module(f"{__name__}.{name}").PATCH for name in MODULES)
