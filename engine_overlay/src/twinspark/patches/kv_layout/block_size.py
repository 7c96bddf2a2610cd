"""#2: a block size that leaves no room for one compressed token is refused, not divided by."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = "vllm.v1.kv_cache_interface:MLAAttentionSpec"
TARGET = f"{SPEC}.__post_init__"


def complaint(block_size: int, compress_ratio: int) -> str | None:
    """What is wrong with a block size for a compression ratio, or None."""
    if block_size % compress_ratio == 0:
        return None
    return (
        f"block size {block_size} is not a multiple of the compression ratio {compress_ratio}: a "
        f"block would hold {block_size // compress_ratio} whole compressed tokens. DeepSeek-V4 "
        "needs --block-size 256 (or none: 256 is then chosen)."
    )


def checked(post_init: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `MLAAttentionSpec.__post_init__`.

    Raises (when called):
        ValueError: The block holds no whole number of compressed tokens.
    """

    @functools.wraps(post_init)
    def check(self: Any) -> None:  # noqa: ANN401 - vLLM's
        problem = complaint(self.block_size, self.compress_ratio)
        if problem is not None:
            raise ValueError(problem)
        post_init(self)

    return check


def _install(edit: Edit) -> None:
    name = "MLAAttentionSpec.__post_init__"
    edit.replace(name, checked(edit.original(name)))


PATCH = Patch(
    id="02-block-size",
    title="ZeroDivisionError at block size 64",
    layer="kv_layout",
    targets=(TARGET,),
    upstream_sha256=pinned(TARGET, f"{SPEC}.storage_block_size", f"{SPEC}.real_page_size_bytes"),
    vllm=("0.27.1",),
    symptom="ZeroDivisionError in EngineCore after the whole weight load.",
    cause="kv_cache_interface.py:403 storage_block_size = block_size // compress_ratio is 0 for "
    "block 64 and ratio 128; the page size becomes 0 and kv_cache_utils.py:1932 divides by it.",
    fix="The spec refuses a block size that is not a multiple of its compression ratio, with a "
    "sentence that says which one to use. The variant refuses it before any node is touched.",
    upstream="Not fixed in the spec up to 0.33.0 (there `tokens_per_state`; page size still 0).",
    remove_when="The stock spec raises for block size 64 at compression ratio 128.",
    constraint="A weight load from NVMe takes minutes on a Spark: refuse before it.",
    applies=lambda _: None,
    install=_install,
)
