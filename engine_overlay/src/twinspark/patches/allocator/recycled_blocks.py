"""#12b: blocks that sliding-window and compressor-state groups take over are zeroed as well."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
TARGET = f"{MANAGER}.__init__"


def recording(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the manager's `__init__`: record new blocks of every attention group."""

    @functools.wraps(original)
    def init(self: Any, kv_cache_spec: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - vLLM's
        from vllm.v1.kv_cache_interface import AttentionSpec

        original(self, kv_cache_spec, *args, **kwargs)
        if kwargs.get("needs_kv_cache_zeroing") and isinstance(kv_cache_spec, AttentionSpec):
            self._record_new_block_ids = True

    return init


def _install(edit: Edit) -> None:
    name = "SingleTypeKVCacheManager.__init__"
    edit.replace(name, recording(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("its runner never zeroes blocks (cpu_model_runner.py:175)")


PATCH = Patch(
    id="12b-recycled-blocks",
    title="Recycled SWA and state blocks keep old bytes",
    layer="allocator",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        f"{MANAGER}.allocate_new_blocks",
        f"{MANAGER}.take_new_block_ids",
        "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.__init__",
        "vllm.v1.core.sched.scheduler:Scheduler._get_new_block_ids_to_zero",
    ),
    vllm=("0.27.1",),
    symptom="Bytes of a finished request, read under another precision, decode to NaN or noise in "
    "window and compressor-state blocks.",
    cause="single_type_kv_cache_manager.py:86-91 records new block ids for exact full and MLA "
    "types only, so the zeroer never hears of blocks that SWA or state groups take over.",
    fix="Every attention group records its new blocks when the cache needs zeroing; the zeroer "
    "clears their rows in the same step, before the forward pass.",
    upstream="Fixed by #51749 (0.28.0).",
    remove_when="A sliding-window manager records new block ids in stock.",
    constraint="One packed pool on unified memory: every block serves all precisions in turn.",
    applies=_applies,
    install=_install,
)
