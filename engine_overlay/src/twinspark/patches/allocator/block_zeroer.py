"""#12: zero the physical row of a block, and not what follows it."""

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinspark import selection
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

UTILS = "vllm.v1.worker.utils"
INIT = f"{UTILS}:KVBlockZeroer.__init__"
ZERO = f"{UTILS}:KVBlockZeroer.zero_block_ids"


@dataclass(frozen=True, slots=True)
class Span:
    """Where one layer's pages lie in the storage of its KV cache tensor.

    Attributes:
        layer: Layer name.
        storage: Address of the storage, which packed layers share.
        offset: Bytes from the storage to the layer's page of block 0.
        page: Bytes from the first to the last byte of one page.
        stride: Bytes from one block to the next.
        blocks: Number of blocks.
    """

    layer: str
    storage: int
    offset: int
    page: int
    stride: int
    blocks: int


def span_of(layer: str, kv: torch.Tensor, block_dim: int) -> Span:
    """Describe where a layer's KV cache tensor lies."""
    size = kv.element_size()
    storage = kv.untyped_storage().data_ptr()
    page = 1 + sum(
        (extent - 1) * step
        for dim, (extent, step) in enumerate(zip(kv.shape, kv.stride(), strict=True))
        if dim != block_dim
    )
    return Span(
        layer,
        storage,
        kv.data_ptr() - storage,
        page * size,
        kv.stride(block_dim) * size,
        kv.shape[block_dim],
    )


def packed(spans: Iterable[Span]) -> dict[int, list[Span]]:
    """Storages in which several layers' pages share one physical row a block.

    A row is shared when every layer's page lies inside the first stride of the storage and more
    than one place in it is taken. Layers that own their tensor, padded pages included, and layers
    that own a contiguous part of a common allocation are not packed.

    Returns:
        Spans by storage address, for packed storages only.
    """
    by_storage: dict[int, list[Span]] = {}
    for span in spans:
        by_storage.setdefault(span.storage, []).append(span)
    return {
        storage: found
        for storage, found in by_storage.items()
        if len({span.stride for span in found}) == 1
        and all(span.offset + span.page <= span.stride for span in found)
        and (len({span.offset for span in found}) > 1 or any(span.offset for span in found))
    }


def rows_of(kv: torch.Tensor, stride: int, blocks: int) -> torch.Tensor:
    """View the storage under a packed layer as its rows.

    Args:
        kv: KV cache tensor of any layer of the storage.
        stride: Bytes a row.
        blocks: Number of blocks.

    Returns:
        `[blocks, stride / w]` of an integer type of `w` bytes, the widest that divides the row.

    Raises:
        ValueError: The storage is not whole rows.
    """
    import torch

    storage = kv.untyped_storage()
    if storage.nbytes() != blocks * stride:
        raise ValueError(
            f"KV storage of {storage.nbytes()} bytes is not {blocks} rows of {stride} bytes"
        )
    kind = torch.int64 if stride % 8 == 0 else torch.int32 if stride % 4 == 0 else torch.uint8
    flat = torch.empty(0, dtype=kind, device=kv.device).set_(storage)
    return flat.view(blocks, stride // flat.element_size())


def zero_rows(rows: torch.Tensor, block_ids: Sequence[int]) -> None:
    """Set whole rows to zero, each once.

    Args:
        rows: `[blocks, width]`, contiguous.
        block_ids: Rows to clear.

    Raises:
        IndexError: A block id outside the cache; nothing has been written then.
    """
    wanted = sorted(set(block_ids))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < rows.shape[0]:
        raise IndexError(f"block ids {wanted[0]}..{wanted[-1]} outside {rows.shape[0]} blocks")
    import torch
    from vllm.utils.torch_utils import async_tensor_h2d

    index = async_tensor_h2d(wanted, device=rows.device, dtype=torch.int64)
    if rows.is_cuda and index.numel():
        flat = rows.view(torch.uint8)
        selection.launcher("zero_rows", flat, index)(flat, index)
    else:
        rows.index_fill_(0, index, 0)


def _spans(groups: Iterable[Any], block_sizes: Sequence[int], cache_dtype: str,
           context: dict[str, Any], excluded: set[str]) -> list[tuple[Span, int]]:  # fmt: skip
    """Spans of the layers that the stock zeroer serves, with kernel blocks a scheduler block."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    found: list[tuple[Span, int]] = []
    for group in groups:
        spec = group.kv_cache_spec
        if not isinstance(spec, FullAttentionSpec) or group.kv_cache_group_id >= len(block_sizes):
            continue
        size = block_sizes[group.kv_cache_group_id]
        block_dim = group.backend.get_kv_cache_block_dim(
            size, spec.num_kv_heads, spec.head_size, cache_dtype_str=cache_dtype
        )
        for layer in group.layer_names:
            kv = context[layer].kv_cache
            if layer not in excluded and isinstance(kv, torch.Tensor):
                found.append((span_of(layer, kv, block_dim), spec.block_size // size))
    return found


def initialised(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `KVBlockZeroer.__init__`: take packed layers out of its segment table."""

    @functools.wraps(original)
    def init(  # noqa: PLR0913, PLR0917 - vLLM's signature
        self: Any,  # noqa: ANN401 - vLLM's
        device: torch.device,
        attn_groups_iter: Iterable[Any],
        kernel_block_sizes: list[int],
        cache_dtype: str,
        static_forward_context: dict[str, Any],
        runner_only_attn_layers: set[str] | None = None,
    ) -> None:
        groups = list(attn_groups_iter)
        excluded = set(runner_only_attn_layers or ())
        spans = _spans(groups, kernel_block_sizes, cache_dtype, static_forward_context, excluded)
        shared = packed(span for span, _ in spans)
        ratios = {span.layer: ratio for span, ratio in spans}
        rows = []
        for members in shared.values():
            split = [span.layer for span in members if ratios[span.layer] != 1]
            if split:
                raise ValueError(f"packed rows with split blocks in layers {split}: not understood")
            first = members[0]
            kv = static_forward_context[first.layer].kv_cache
            rows.append(rows_of(kv, first.stride, first.blocks))
            excluded.update(span.layer for span in members)
        original(
            self,
            device,
            groups,
            kernel_block_sizes,
            cache_dtype,
            static_forward_context,
            excluded or runner_only_attn_layers,
        )
        self.twinspark_rows = rows

    return init


def zeroing(original: Callable[[Any, list[int]], None]) -> Callable[[Any, list[int]], None]:
    """Wrap `KVBlockZeroer.zero_block_ids`: rows of packed storages, then the stock segments."""

    @functools.wraps(original)
    def zero_block_ids(self: Any, block_ids: list[int]) -> None:  # noqa: ANN401 - vLLM's
        for rows in self.twinspark_rows:
            zero_rows(rows, block_ids)
        original(self, block_ids)

    return zero_block_ids


def _install(edit: Edit) -> None:
    init, zero = "KVBlockZeroer.__init__", "KVBlockZeroer.zero_block_ids"
    edit.replace(init, initialised(edit.original(init)))
    edit.replace(zero, zeroing(edit.original(zero)))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("its runner never zeroes blocks (cpu_model_runner.py:175)")


PATCH = Patch(
    id="12-block-zeroer",
    title="The block zeroer wipes the next block",
    layer="allocator",
    targets=(INIT, ZERO),
    upstream_sha256=pinned(
        INIT,
        ZERO,
        f"{UTILS}:KVBlockZeroer.warmup",
        "vllm.v1.core.kv_cache_utils:_get_packed_kv_cache_layout",
        "vllm.v1.worker.gpu.attn_utils:_allocate_kv_cache",
    ),
    vllm=("0.27.1",),
    symptom="With several long documents in flight, answers mix up or lose their context; "
    "block b+1 loses 993,600 of its 1,002,240 bytes whenever block b is handed out.",
    cause="v1/worker/utils.py:158-173 takes kv.stride(block_dim) as the page's size and each "
    "layer's own address as its start: in a packed cache that is a whole row from the layer's "
    "offset, so it reaches into the next block, and out of the allocation for the last one.",
    fix="Find storages whose rows several layers share; zero exactly the row [bS, (b+1)S) once "
    "from the storage's base; everything else keeps the stock path.",
    upstream="Came with #43990, #47574 and #49704 on the packed layout of #44577 (0.27.0); fixed "
    "by #50276 and #52058 in 0.28.0.",
    remove_when="The zeroer keeps a page span apart from the block stride (0.28.0).",
    constraint="One million tokens on two nodes means few, large blocks in one packed pool.",
    applies=_applies,
    install=_install,
)
