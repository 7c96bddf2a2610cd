"""Rules over more than one key: each yields what is wrong with a variant, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotated_types import Ge, Le

from twinspark.variant.errors import Problem
from twinspark.variant.keys import key_of
from twinspark.variant.planner import BLOCK, budget_left, flash_layout, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinspark.variant.planner import Layout
    from twinspark.variant.schema import Variant

DRAFT_BLOCK = 5  # dspark_block_size of the 0731 checkpoint
LAB_BLOCKS = 32  # the CPU engine's fast path takes multiples of it
DEEPGEMM_ONLY = {
    "auto",
    "deep_gemm",
}  # what ends at DeepGEMM once vLLM believes that it has kernels


class RuleError(ValueError):
    """The keys do not fit together; pydantic carries it to the loader, which knows the lines.

    Attributes:
        problems: All that is wrong.
        variant: The variant, where the memory alone is wrong and its plan can be shown.
    """

    def __init__(self, problems: list[Problem], variant: Variant) -> None:
        self.problems = problems
        planned = variant.is_deepseek and problems == list(_pool(variant))
        self.variant = variant if planned else None
        super().__init__("; ".join(f"{problem.key}: {problem.text}" for problem in problems))


def broken_rules(variant: Variant) -> list[Problem]:
    """Everything that is wrong with a variant whose single values are each within bounds."""
    rules = (*_COMMON, *(_DEEPSEEK if variant.is_deepseek else _LAB))
    return [problem for rule in rules for problem in rule(variant)]


def _scope(variant: Variant) -> Iterator[Problem]:
    for name in variant.model_fields_set:
        if not variant.takes(key_of(type(variant).model_fields[name])):
            yield Problem(
                f"means nothing for MODEL_KIND={variant.MODEL_KIND}: remove the line", name
            )


def _ports(variant: Variant) -> Iterator[Problem]:
    if variant.API_PORT == variant.MASTER_PORT:
        yield Problem(
            f"{variant.MASTER_PORT} is the API's port too (API_PORT): take another", "MASTER_PORT"
        )


def _batch(variant: Variant) -> Iterator[Problem]:
    step = variant.MAX_NUM_SEQS * (variant.draft_tokens + 1)
    if step > variant.MAX_NUM_BATCHED_TOKENS:
        yield Problem(
            f"{variant.MAX_NUM_BATCHED_TOKENS} tokens do not hold one decode step of "
            f"{variant.MAX_NUM_SEQS} requests "
            f"({step} tokens): raise it, or lower MAX_NUM_SEQS",
            "MAX_NUM_BATCHED_TOKENS",
        )
    if (
        not variant.ENABLE_CHUNKED_PREFILL
        and variant.MAX_NUM_BATCHED_TOKENS < variant.MAX_MODEL_LEN
    ):
        yield Problem(
            f"without it a prompt of MAX_MODEL_LEN={variant.MAX_MODEL_LEN} must fit one step of "
            f"MAX_NUM_BATCHED_TOKENS={variant.MAX_NUM_BATCHED_TOKENS}: write true",
            "ENABLE_CHUNKED_PREFILL",
        )


def _block(variant: Variant) -> Iterator[Problem]:
    if variant.BLOCK_SIZE != BLOCK:
        yield Problem(
            f"{variant.BLOCK_SIZE} is refused for this model: its layers compress by 4 and 128, "
            "vLLM 0.27.1 divides by a page of "
            f"no tokens below 128 and has kernels for {BLOCK} only. Write BLOCK_SIZE={BLOCK}",
            "BLOCK_SIZE",
        )


def _dtype(variant: Variant) -> Iterator[Problem]:
    if variant.DTYPE == "float32":
        yield Problem(
            "float32 is for the lab's model: write auto (the checkpoint's bfloat16)", "DTYPE"
        )


def _speculation(variant: Variant) -> Iterator[Problem]:
    if variant.SPEC_METHOD == "none" and variant.SPEC_TOKENS:
        yield Problem(
            f"{variant.SPEC_TOKENS} without speculation: write 0, or SPEC_METHOD=dspark",
            "SPEC_TOKENS",
        )
    if variant.SPEC_METHOD == "dspark" and variant.SPEC_TOKENS < DRAFT_BLOCK:
        yield Problem(
            f"{variant.SPEC_TOKENS} is below the checkpoint's draft block of {DRAFT_BLOCK}: its "
            "head drafts whole blocks, and vLLM "
            f"0.27.1 refuses fewer. Write SPEC_TOKENS={DRAFT_BLOCK}, or SPEC_METHOD=none and "
            "SPEC_TOKENS=0",
            "SPEC_TOKENS",
        )
    if variant.SPEC_METHOD == "dspark" and not variant.VLLM_USE_V2_MODEL_RUNNER:
        yield Problem("dspark runs on model runner V2 only: write true", "VLLM_USE_V2_MODEL_RUNNER")


def _graphs(variant: Variant) -> Iterator[Problem]:
    step = variant.MAX_NUM_SEQS * (variant.draft_tokens + 1)
    size = variant.CUDAGRAPH_MAX_CAPTURE_SIZE
    if variant.ENFORCE_EAGER and variant.CUDAGRAPH_MODE != "NONE":
        yield Problem(
            f"{variant.CUDAGRAPH_MODE} with ENFORCE_EAGER=true captures nothing: write NONE",
            "CUDAGRAPH_MODE",
        )
    if size is not None and size < step:
        yield Problem(
            f"{size} is below one full decode step ({variant.MAX_NUM_SEQS} requests x "
            f"{variant.draft_tokens + 1} tokens): write {step} "
            "or remove the line",
            "CUDAGRAPH_MAX_CAPTURE_SIZE",
        )


def _deepgemm(variant: Variant) -> Iterator[Problem]:
    if variant.TWINSPARK_KERNELS != "triton":
        return
    why = (
        "ends at DeepGEMM, whose build in vLLM 0.27.1 has no SM120 kernel (it dies on GB10 while "
        "weights load)"
        " and TWINSPARK_KERNELS=triton installs no other"
    )
    if variant.LINEAR_BACKEND in DEEPGEMM_ONLY:
        yield Problem(f"{variant.LINEAR_BACKEND} {why}: write triton", "LINEAR_BACKEND")
    if variant.MOE_BACKEND in DEEPGEMM_ONLY:
        yield Problem(f"{variant.MOE_BACKEND} {why}: write marlin", "MOE_BACKEND")
    if variant.VLLM_USE_DEEP_GEMM:
        yield Problem(
            f"true {why}: write false, or TWINSPARK_KERNELS=deepgemm", "VLLM_USE_DEEP_GEMM"
        )


def _deepgemm_wanted(variant: Variant) -> Iterator[Problem]:
    if variant.TWINSPARK_KERNELS != "triton" and not variant.VLLM_USE_DEEP_GEMM:
        yield Problem(
            f"false with TWINSPARK_KERNELS={variant.TWINSPARK_KERNELS}, which needs DeepGEMM: "
            "write true",
            "VLLM_USE_DEEP_GEMM",
        )


def _bounds(variant: Variant, name: str) -> tuple[int, int]:
    """What the schema takes for a number, both ends included."""
    metadata = type(variant).model_fields[name].metadata
    low = next(item.ge for item in metadata if isinstance(item, Ge))
    high = next(item.le for item in metadata if isinstance(item, Le))
    return int(str(low)), int(str(high))


def _utilization(pool: int) -> float | None:
    """Smallest whole per cent that grants the weights and a pool; None where none may."""
    shares = (percent / 100 for percent in range(50, 93))
    return next((share for share in shares if budget_left(share, pool) >= 0), None)


def _smaller_batch(variant: Variant, layout: Layout) -> int | None:
    """The largest halving of the step's budget with which the context fits the pool."""
    per_token = variant.in_flight_tokens // variant.MAX_NUM_BATCHED_TOKENS
    least = max(
        _bounds(variant, "MAX_NUM_BATCHED_TOKENS")[0],
        variant.MAX_NUM_SEQS * (variant.draft_tokens + 1),
        0 if variant.ENABLE_CHUNKED_PREFILL else variant.MAX_MODEL_LEN,
    )
    batch = variant.MAX_NUM_BATCHED_TOKENS // 2
    while batch >= least:
        need = layout.bytes_needed(variant.MAX_MODEL_LEN, per_token * batch)
        if need <= variant.KV_CACHE_MEMORY_BYTES:
            return batch
        batch //= 2
    return None


def _ways_into_the_pool(variant: Variant, layout: Layout, need: int) -> Iterator[str]:
    """Single changes that make a context fit, of those that no other rule refuses."""
    pool = variant.KV_CACHE_MEMORY_BYTES
    if batch := _smaller_batch(variant, layout):
        yield f"write MAX_NUM_BATCHED_TOKENS={batch} (the cheap lever)"
    if need <= _bounds(variant, "KV_CACHE_MEMORY_BYTES")[1]:
        if budget_left(variant.GPU_MEMORY_UTILIZATION, need) >= 0:
            yield f"pin at least {need} bytes"
        elif share := _utilization(need):
            yield f"pin {need} bytes with GPU_MEMORY_UTILIZATION={share:.2f}"
    fits = layout.longest_context(pool, variant.in_flight_tokens, variant.MAX_MODEL_LEN)
    if fits >= _bounds(variant, "MAX_MODEL_LEN")[0]:
        yield f"write MAX_MODEL_LEN={fits}"


def _pool(variant: Variant) -> Iterator[Problem]:
    layout = flash_layout(draft=variant.SPEC_METHOD == "dspark")
    in_flight, pool = variant.in_flight_tokens, variant.KV_CACHE_MEMORY_BYTES
    need = layout.bytes_needed(variant.MAX_MODEL_LEN, in_flight)
    if need > pool:
        ways = list(_ways_into_the_pool(variant, layout, need))
        advice = ", or ".join(ways) or "lower MAX_NUM_BATCHED_TOKENS and MAX_MODEL_LEN together"
        yield Problem(
            f"{variant.MAX_MODEL_LEN} tokens need {gib(need)} of KV with {in_flight} tokens in "
            f"flight, and the pool (KV_CACHE_MEMORY_BYTES={pool}) has {gib(pool)}: {advice} "
            "(`twinspark variant plan` prints the table)",
            "MAX_MODEL_LEN",
        )
    if (left := budget_left(variant.GPU_MEMORY_UTILIZATION, pool)) < 0:
        yield Problem(
            f"{pool} ({gib(pool)}) and the weights are {gib(-left)} more than "
            f"GPU_MEMORY_UTILIZATION={variant.GPU_MEMORY_UTILIZATION} of a Spark grants, and on "
            f"unified memory that freezes the node: {_into_the_grant(variant, need)}",
            "KV_CACHE_MEMORY_BYTES",
        )


def _into_the_grant(variant: Variant, need: int) -> str:
    """A smaller pool where it still holds the context, else a larger share."""
    room = budget_left(variant.GPU_MEMORY_UTILIZATION, 0)
    least = max(need, _bounds(variant, "KV_CACHE_MEMORY_BYTES")[0])
    if least <= room:
        return f"pin at most {room} bytes"
    why = "the weights alone fill it" if room <= 0 else f"the context needs {least} bytes of it"
    if share := _utilization(variant.KV_CACHE_MEMORY_BYTES):
        return f"{why}, write GPU_MEMORY_UTILIZATION={share:.2f}"
    if share := _utilization(least):
        return f"{why}, write GPU_MEMORY_UTILIZATION={share:.2f} and pin {least} bytes"
    return f"{why}, lower MAX_NUM_BATCHED_TOKENS or MAX_MODEL_LEN and pin less"


def _lab_block(variant: Variant) -> Iterator[Problem]:
    if variant.BLOCK_SIZE % LAB_BLOCKS:
        yield Problem(
            f"{variant.BLOCK_SIZE} is not a multiple of {LAB_BLOCKS}, as the CPU engine wants: "
            "write 32",
            "BLOCK_SIZE",
        )


def _lab_context(variant: Variant) -> Iterator[Problem]:
    if variant.MAX_MODEL_LEN > 32_768:
        yield Problem(
            f"{variant.MAX_MODEL_LEN} is more than the lab's model was built for: write at most "
            "32768",
            "MAX_MODEL_LEN",
        )


_COMMON: tuple[Callable[[Variant], Iterator[Problem]], ...] = (_scope, _ports, _batch)
_DEEPSEEK: tuple[Callable[[Variant], Iterator[Problem]], ...] = (
    _block, _dtype, _speculation, _graphs, _deepgemm, _deepgemm_wanted, _pool,
)  # fmt: skip
_LAB: tuple[Callable[[Variant], Iterator[Problem]], ...] = (_lab_block, _lab_context)
