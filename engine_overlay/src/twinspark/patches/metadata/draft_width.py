"""#3 / W6: DSpark's draft index rows get a width that the SM120 kernels have, 512 for 133."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

BUILDER = "vllm.v1.attention.backends.mla.sparse_swa:DeepseekSparseSWAMetadataBuilder"
TARGET = f"{BUILDER}.__init__"


@dataclass(frozen=True, slots=True)
class Tables:
    """What FlashInfer's SM120 sparse-MLA kernels are compiled for.

    Attributes:
        decode: (heads, width) of the decode kernel, which takes calls of up to 64 tokens.
        prefill_single: Widths of the prefill kernel for a call without extra segment.
        prefill_dual: Widths of its primary segment for a call with one.
        prefill_heads: Head counts of the prefill kernel.
    """

    decode: frozenset[tuple[int, int]]
    prefill_single: frozenset[int]
    prefill_dual: frozenset[int]
    prefill_heads: frozenset[int]

    def takes(self, tokens: int, heads: int, width: int, *, dual: bool) -> bool:
        """Whether some kernel takes a call; otherwise FlashInfer aborts."""
        if tokens <= DECODE_TOKENS and (heads, width) in self.decode:
            return True
        if tokens <= DECODE_TOKENS or heads not in self.prefill_heads:
            return False  # sparse_mla_sm120.cu:261 refuses small calls in the prefill kernel
        return width in (self.prefill_dual if dual else self.prefill_single)


DECODE_TOKENS = 64
_HEADS = (8, 16, 32, 64, 128)
# FlashInfer 0.6.16.post3: mla/_sparse_mla_sm120.py:79-97, csrc/sparse_mla_sm120_prefill.cu:294-303
# and :381. There is no width 256 in any of them.
FLASHINFER_0_6_16 = Tables(
    frozenset((heads, width) for heads in _HEADS for width in (128, 512, 1024)),
    frozenset({128, 512, 1024, 2048}),
    frozenset({128}),
    frozenset(_HEADS[1:]),
)


def bucket(needed: int, stock: int, tables: Tables, heads: int) -> int:
    """Width for rows of a single-segment call, at any number of tokens.

    Widening is allowed for single-segment calls only: a dual call's primary width must stay 128
    (prefill) whatever its size, so those are never touched. The draft layers are SWA only.

    Args:
        needed: Entries that a row can hold.
        stock: Width that stock computes.
        tables: What the kernels are compiled for.
        heads: Query heads a rank.

    Returns:
        `stock` where both kernels have it, else the smallest width that both have.

    Raises:
        ValueError: No width fits.
    """
    decode = {width for count, width in tables.decode if count == heads}
    both = decode & tables.prefill_single if heads in tables.prefill_heads else decode
    if stock in both:
        return stock
    fitting = [width for width in sorted(both) if width >= needed]
    if not fitting:
        raise ValueError(
            f"no SM120 sparse-MLA kernel takes {needed} indices a row with {heads} heads: "
            f"decode has {sorted(decode)}, prefill {sorted(tables.prefill_single)}"
        )
    return fitting[0]


def installed_tables() -> Tables:
    """Tables of the FlashInfer that is installed; those of 0.6.16.post3 where it tells none."""
    try:
        from flashinfer.mla import _sparse_mla_sm120 as module
    except (ImportError, RuntimeError, AssertionError):  # without a GPU its import fails
        return FLASHINFER_0_6_16
    decode = frozenset(getattr(module, "_DECODE_DSV4_DISPATCH", FLASHINFER_0_6_16.decode))
    # A release that adds a width to the decode kernel adds it to the prefill kernel too (0.6.18).
    single = FLASHINFER_0_6_16.prefill_single | {width for _, width in decode}
    return Tables(decode, single, FLASHINFER_0_6_16.prefill_dual, FLASHINFER_0_6_16.prefill_heads)


def heads_of(vllm_config: Any) -> int:  # noqa: ANN401 - vLLM's
    """Query heads a rank, padded as the kernels want them (at least 8)."""
    parallel = vllm_config.parallel_config.tensor_parallel_size
    heads = vllm_config.model_config.hf_config.num_attention_heads // parallel
    return next((count for count in _HEADS if count >= heads), heads)


def widened(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the SWA metadata builder's `__init__`; its index buffer is allocated later."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - vLLM's
        original(self, *args, **kwargs)
        if not self.is_dspark:
            return
        stock = self.noncausal_index_width
        width = bucket(
            self.window_size + self.num_speculative_tokens,
            stock,
            installed_tables(),
            heads_of(self.vllm_config),
        )
        self.noncausal_index_width = width
        report.current().fact("dspark_index_width", {"stock": stock, "used": width})

    return init


def _install(edit: Edit) -> None:
    name = "DeepseekSparseSWAMetadataBuilder.__init__"
    edit.replace(name, widened(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_sm12x("its kernels pad the width themselves")


PATCH = Patch(
    id="03-draft-width",
    title="Draft width 256 has no SM120 kernel",
    layer="metadata",
    targets=(TARGET,),
    upstream_sha256=pinned(TARGET, f"{BUILDER}.build"),
    vllm=("0.27.1",),
    symptom="With DSpark the server aborts in the sparse-MLA warm-up: 'expected num_tokens > 64 "
    "(5 vs. 64)', which reads like a block-size problem (#1).",
    cause="sparse_swa.py:486-491 rounds 128+5 indices up to 256; FlashInfer's SM120 tables have "
    "128, 512 and 1024, so the decode kernel declines and the prefill kernel refuses 5 tokens.",
    fix="Take the smallest width that the decode and the single-segment prefill kernel both have "
    "(512). Lengths still bound the reads. Single-segment calls may be widened at any number of "
    "tokens, dual-segment calls never (4a).",
    upstream="#50720; #51538 in 0.28.0 fails fast; FlashInfer #4380 in 0.6.18 adds the width. "
    "First working stock pair: vLLM 0.29.0 with FlashInfer 0.6.18.",
    remove_when="FlashInfer's tables hold stock's width (the patch then changes nothing).",
    constraint="SM121 takes FlashInfer's SM120 kernels, which are templates per width.",
    applies=_applies,
    install=_install,
)
