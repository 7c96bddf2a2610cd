"""Rules over more than one key: each yields what is wrong with a variant, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinspark.variant.errors import Problem
from twinspark.variant.keys import key_of
from twinspark.variant.planner import BLOCK, budget_left, flash_layout, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinspark.variant.schema import Variant

DRAFT_BLOCK = 5  # dspark_block_size of the 0731 checkpoint
LAB_BLOCKS = 32  # the CPU engine's fast path takes multiples of it
DEEPGEMM_ONLY = {
    "auto",
    "deep_gemm",
}  # what ends at DeepGEMM once vLLM believes that it has kernels


class RuleError(ValueError):
    """The keys do not fit together; pydantic carries it to the loader, which knows the lines."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
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


def _pool(variant: Variant) -> Iterator[Problem]:
    layout = flash_layout(draft=variant.SPEC_METHOD == "dspark")
    in_flight, pool = variant.in_flight_tokens, variant.KV_CACHE_MEMORY_BYTES
    need = layout.bytes_needed(variant.MAX_MODEL_LEN, in_flight)
    if need > pool:
        fits = layout.longest_context(pool, in_flight, variant.MAX_MODEL_LEN)
        yield Problem(
            f"{variant.MAX_MODEL_LEN} tokens need {gib(need)} of KV with {in_flight} tokens in "
            "flight, and the pool "
            f"(KV_CACHE_MEMORY_BYTES={pool}) has {gib(pool)}: halve MAX_NUM_BATCHED_TOKENS (the "
            f"cheap lever), pin at least {need} bytes, "
            f"or write MAX_MODEL_LEN={fits}. `twinspark variant plan` prints the table",
            "MAX_MODEL_LEN",
        )
    if (left := budget_left(variant.GPU_MEMORY_UTILIZATION, pool)) < 0:
        yield Problem(
            f"{pool} ({gib(pool)}) and the weights are {gib(-left)} more than "
            f"GPU_MEMORY_UTILIZATION={variant.GPU_MEMORY_UTILIZATION} "
            "of a Spark grants, and on unified memory that freezes the node: pin less",
            "KV_CACHE_MEMORY_BYTES",
        )


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
