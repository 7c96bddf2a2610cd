"""DSpark: what a draft must look like is asserted when it has been loaded, in plain words."""

from __future__ import annotations

import functools
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("vllm.twinspark")

SPECULATOR = "vllm.v1.worker.gpu.spec_decode.dspark.speculator:DSparkSpeculator"
TARGET = f"{SPECULATOR}.load_draft_model"
DRAFT = "vllm.models.deepseek_v4.nvidia.dspark"


class DSparkError(RuntimeError):
    """The draft is not what the checkpoint and the engine's proposer need."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was loaded.

    Attributes:
        sample_from_anchor: The anchor slot predicts the first draft token.
        query_tokens: Draft query tokens a request; the block.
        draft_tokens: k of the configuration.
        block: `dspark_block_size` of the checkpoint, or None.
        stages: Draft decoder layers.
        target_layers: Target layers whose hidden states are folded and projected.
        projected: Input width of `main_proj` in units of the hidden size.
        markov_rank: Rank of the Markov head.
        final_norm: The draft has a norm before the shared LM head.
        hc_fold: It has the hyper-connection head that folds the streams.
        non_causal: Its block attends to itself in both directions.
        target_depth: Layers of the target.
    """

    sample_from_anchor: bool
    query_tokens: int
    draft_tokens: int
    block: int | None
    stages: int
    target_layers: tuple[int, ...]
    projected: int
    markov_rank: int
    final_norm: bool
    hc_fold: bool
    non_causal: bool
    target_depth: int


FLASH_DEPTH = 43  # DeepSeek-V4-Flash; a small test checkpoint has fewer layers and other ids
FLASH_LAYERS = (40, 41, 42)
FLASH_RANK = 256
STAGES = 3


def complaints(draft: Draft) -> list[str]:
    """What is wrong with a draft, one phrase each."""
    checks = [
        (draft.sample_from_anchor, "sample_from_anchor is off: drafts are read one slot late"),
        (
            draft.query_tokens == draft.draft_tokens,
            f"{draft.query_tokens} query tokens for {draft.draft_tokens} drafts",
        ),
        (
            draft.block in {None, draft.draft_tokens},
            f"num_speculative_tokens {draft.draft_tokens} is not the checkpoint's {draft.block}",
        ),
        (draft.stages == STAGES, f"{draft.stages} draft stages, the checkpoint has {STAGES}"),
        (
            draft.projected == len(draft.target_layers),
            f"main_proj takes {draft.projected} hidden states, {draft.target_layers} are captured",
        ),
        (draft.final_norm, "the norm before the LM head is missing"),
        (draft.hc_fold, "the hyper-connection head that folds the streams is missing"),
        (draft.non_causal, "the draft block is causal: every slot must see the whole block"),
    ]
    if draft.target_depth == FLASH_DEPTH:
        checks += [
            (
                draft.target_layers == FLASH_LAYERS,
                f"target layers {draft.target_layers}, trained on {FLASH_LAYERS}",
            ),
            (
                draft.markov_rank == FLASH_RANK,
                f"Markov rank {draft.markov_rank}, the checkpoint has {FLASH_RANK}",
            ),
        ]
    return [text for good, text in checks if not good]


def inspect_draft(speculator: Any, model: Any) -> Draft:  # noqa: ANN401 - vLLM's
    """Read a loaded draft."""
    config = speculator.draft_model_config.hf_config
    inner = model.model
    return Draft(
        sample_from_anchor=bool(speculator.sample_from_anchor),
        query_tokens=speculator.num_query_per_req,
        draft_tokens=speculator.num_speculative_steps,
        block=getattr(config, "dspark_block_size", None),
        stages=len(inner.layers),
        target_layers=tuple(config.dspark_target_layer_ids),
        projected=inner.main_proj.input_size // config.hidden_size,
        markov_rank=inner.markov_head.markov_w1.weight.shape[1],
        final_norm=getattr(inner, "norm", None) is not None,
        hc_fold=getattr(inner, "hc_head_fn", None) is not None,
        non_causal=bool(speculator.requires_non_causal),
        target_depth=config.num_hidden_layers,
    )


def asserted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `load_draft_model`: look at what it has loaded."""

    @functools.wraps(original)
    def load_draft_model(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - vLLM's
        model = original(self, *args, **kwargs)
        draft = inspect_draft(self, model)
        problems = complaints(draft)
        if problems:
            raise DSparkError("DSpark draft: " + "; ".join(problems))
        report.current().fact("dspark", asdict(draft))
        logger.info("twinspark: DSpark draft as it should be: %s", draft)
        return model

    return load_draft_model


def _install(edit: Edit) -> None:
    name = "DSparkSpeculator.load_draft_model"
    edit.replace(name, asserted(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("DSpark is a CUDA path")


PATCH = Patch(
    id="dspark-assertions",
    title="A wrong DSpark draft shows only as low acceptance",
    layer="config",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        f"{SPECULATOR}.__init__",
        f"{SPECULATOR}._sample_sequential",
        f"{DRAFT}:DSparkDeepseekV4Model.__init__",
        "vllm.models.deepseek_v4.nvidia.model:DeepseekV4Model.forward",
        f"{DRAFT}:DSparkDeepseekV4ForCausalLM.compute_logits",
        "vllm.v1.worker.gpu.spec_decode.dflash.speculator:DFlashSpeculator.__init__",
    ),
    vllm=("0.27.1",),
    symptom="Acceptance at position 0 of 0.41 instead of 0.74, and nothing else to see.",
    cause="Stock's proposer is right; ports got the anchor slot, the per-layer fold, the norm "
    "before the LM head and the causality wrong. Nothing checks them.",
    fix="Assert after the draft's load: anchor sampling, block equal to k, three stages, target "
    "layers, projection width, Markov rank, final norm, fold, non-causal block. The target's "
    "per-layer fold and the norm's place are pinned by source hash.",
    upstream="Not upstream's to do; confidence-head weights are wired in 0.28.0.",
    remove_when="Never by itself: it costs nothing.",
    constraint="The 0731 checkpoint's mtp.* tensors are DSpark's: there is no plain MTP to fall "
    "back to.",
    applies=_applies,
    install=_install,
)
