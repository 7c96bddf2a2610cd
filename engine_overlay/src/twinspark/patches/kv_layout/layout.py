"""#9: one description of the KV cache, equal on all ranks; labels that hide it are refused."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger("vllm.twinspark")

RESOLVE = "vllm.models.deepseek_v4.attention:_resolve_dsv4_kv_cache_dtype"
CONFIGS = "vllm.v1.engine.core:get_kv_cache_configs"
LABEL = "fp8_ds_mla"
RECORD_BYTES = 584  # 448 E4M3 + 64 bf16 rope + 7 UE8M0 scales and 1 pad (kv_cache_interface.py:411)
ALIGNMENT = 576
WRITER = "_C.fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert"
READER = "sparse MLA, footer layout: P x 576 data, then P x 8 scales"


class LayoutError(ValueError):
    """The KV cache's layout is ambiguous, inconsistent, or not the same on all ranks."""


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Layers that share one page layout.

    Attributes:
        spec: Class of their KV cache spec.
        label: Cache dtype label, as the writer and reader understand it.
        dtype: Element type of the tensor.
        block: Tokens a block.
        stored: Records a block (compressed tokens).
        bytes_per_token: Bytes a record, before padding.
        page: Bytes a page, with padding.
        alignment: What pages are padded to; 0 when they are not.
        writer: What writes the records.
        reader: What reads them.
        layers: How many layers have it.
    """

    spec: str
    label: str
    dtype: str
    block: int
    stored: int
    bytes_per_token: int
    page: int
    alignment: int
    writer: str
    reader: str
    layers: int


def describe(specs: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Kinds of layers in a rank's KV cache specs, in a fixed order."""
    kinds: Counter[tuple[Any, ...]] = Counter()
    for spec in specs.values():
        stored = getattr(spec, "storage_block_size", spec.block_size)
        real = getattr(spec, "real_page_size_bytes", spec.page_size_bytes)
        label = getattr(spec, "cache_dtype_str", None) or ""
        ours = label == LABEL
        kinds[
            (
                type(spec).__name__, label, str(getattr(spec, "dtype", "")), spec.block_size,
                stored, real // stored if stored else 0, spec.page_size_bytes,
                getattr(spec, "alignment", None) or 0, WRITER if ours else "model's own",
                READER if ours else "model's own",
            )
        ] += 1  # fmt: skip
    return tuple(sorted(Kind(*(*kind, count)) for kind, count in kinds.items()))


def complaints(kinds: Sequence[Kind]) -> list[str]:
    """What in a layout cannot be read back as it was written."""
    found = []
    if any(kind.label == LABEL for kind in kinds):
        found += [
            f"{kind.spec} block {kind.block}: pages are aligned to {kind.alignment}, {LABEL} needs "
            f"{ALIGNMENT} in every layer"
            for kind in kinds
            if kind.alignment not in {0, ALIGNMENT}
        ]
    found += [
        f"{kind.spec}: {kind.bytes_per_token} B a token under {LABEL}, the record has "
        f"{RECORD_BYTES} B"
        for kind in kinds
        if kind.label == LABEL and kind.bytes_per_token != RECORD_BYTES
    ]
    return found


def compared(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_kv_cache_configs`, which sees the specs of all ranks at once."""

    @functools.wraps(original)
    def check(vllm_config: Any, kv_cache_specs: list[Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - vLLM's
        ranks = [describe(specs) for specs in kv_cache_specs]
        whole = vllm_config.parallel_config.pipeline_parallel_size == 1
        if whole and any(kinds != ranks[0] for kinds in ranks[1:]):
            raise LayoutError(f"KV cache layouts differ between ranks: {ranks}")
        problems = complaints(ranks[0]) if ranks else []
        if problems:
            raise LayoutError("; ".join(problems))
        for kind in ranks[0] if ranks else ():
            logger.info("twinspark: KV layout, equal on %d ranks: %s", len(ranks), kind)
        described = [asdict(kind) for kind in ranks[0]] if ranks else []
        report.current().fact("kv_layout", {"ranks": len(ranks), "kinds": described})
        return original(vllm_config, kv_cache_specs, *args, **kwargs)

    return check


def unambiguous(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_resolve_dsv4_kv_cache_dtype`: only the label that says what is stored."""

    @functools.wraps(original)
    def resolve(use_fp8_ds_mla_layout: bool, kv_cache_dtype: str, cache_config: Any) -> Any:  # noqa: ANN401 - vLLM's
        if use_fp8_ds_mla_layout and kv_cache_dtype != LABEL:
            raise LayoutError(
                f"--kv-cache-dtype {kv_cache_dtype} would store {LABEL} records (E4M3 with UE8M0 "
                f"scales and bf16 rope, {RECORD_BYTES} B a token): write --kv-cache-dtype {LABEL}"
            )
        return original(use_fp8_ds_mla_layout, kv_cache_dtype, cache_config)

    return resolve


def _install(edit: Edit) -> None:
    if edit.module.__name__ == "vllm.v1.engine.core":
        edit.replace("get_kv_cache_configs", compared(edit.original("get_kv_cache_configs")))
    else:
        name = "_resolve_dsv4_kv_cache_dtype"
        edit.replace(name, unambiguous(edit.original(name)))


PATCH = Patch(
    id="09-kv-layout",
    title="A cache dtype that is not what it says",
    layer="kv_layout",
    targets=(RESOLVE, CONFIGS),
    upstream_sha256=pinned(
        RESOLVE,
        CONFIGS,
        "vllm.v1.core.kv_cache_utils:get_kv_cache_configs",
        "vllm.models.deepseek_v4.attention:DeepseekV4Attention.get_kv_cache_spec",
        "vllm.v1.attention.backends.mla.sparse_swa:DeepseekV4SWACache.get_kv_cache_spec",
    ),
    vllm=("0.27.1",),
    symptom="--kv-cache-dtype fp8, fp8_e4m3, fp8_e5m2 and fp8_per_token_head all store the same "
    "584-byte record; `auto` dies as a bare assertion in a worker.",
    cause="attention.py:103-114 rewrites every label that starts with fp8; four places derive "
    "alignment from the label by string comparison and agree only after that write-back.",
    fix="Refuse any label but fp8_ds_mla where that record is stored; describe every layer's page "
    "once, refuse mixed alignments, and refuse ranks that differ.",
    upstream="0.33.0 maps auto to fp8 and raises ValueError; the labels stay.",
    remove_when="Stock rejects labels that it does not store.",
    constraint="Two nodes boot from two file systems; stock compares their specs by an assertion.",
    applies=lambda _: None,
    install=_install,
)
