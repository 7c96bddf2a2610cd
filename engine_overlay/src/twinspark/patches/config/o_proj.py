"""W4 hook: the grouped FP8 product of the o-projection."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from typing import TYPE_CHECKING, Any

from twinspark import selection
from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

FLASHINFER = "vllm.models.deepseek_v4.nvidia.flashinfer_sparse:deep_gemm_fp8_o_proj"
FLASHMLA = "vllm.models.deepseek_v4.nvidia.flashmla:deep_gemm_fp8_o_proj"
SOURCE = "vllm.models.deepseek_v4.nvidia.ops.o_proj:deep_gemm_fp8_o_proj"


def served(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve `deep_gemm_fp8_o_proj` by the overlay's kernel; compare with it in mode `check`."""

    @functools.wraps(original)
    def fp8_o_proj(
        o: torch.Tensor,
        positions: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        wo_a: Any,  # noqa: ANN401 - a linear module of vLLM
        wo_b: Any,  # noqa: ANN401 - a linear module of vLLM
        **sizes: Any,  # noqa: ANN401 - n_groups, heads_per_group, o_lora_rank, ...
    ) -> torch.Tensor:
        """Inverse RoPE, FP8 quantisation, grouped product and `wo_b`: `[T, hidden]` bfloat16."""
        ours = grouped_product(o, positions, cos_sin_cache, wo_a, **sizes).flatten(1)
        if not selection.checking():
            return wo_b(ours)
        from twinspark.kernels import agreement

        # With wo_b last and once: it may be a collective.
        theirs = original(o, positions, cos_sin_cache, wo_a, lambda flat: flat, **sizes)
        agreement.values("fp8_o_proj", (ours, theirs))
        selection.settle()
        return wo_b(theirs)

    return fp8_o_proj


def grouped_product(  # noqa: PLR0913 - vLLM's signature
    o: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    wo_a: Any,  # noqa: ANN401 - a linear module of vLLM
    *,
    n_groups: int,
    heads_per_group: int,
    nope_dim: int,
    rope_dim: int,
    o_lora_rank: int,
    einsum_recipe: tuple[int, int, int],  # noqa: ARG001 - DeepGEMM's
    tma_aligned_scales: bool,  # noqa: ARG001 - DeepGEMM's
) -> torch.Tensor:
    """Inverse RoPE, FP8 quantisation and grouped product.

    The scales are float32 a block of 128 whatever the card, and `wo_a` may be as the loader leaves
    it, `[G*R, K]`: the shapes that only DeepGEMM's post-processing makes are not needed.

    Returns:
        `[T, G, R]` bfloat16.
    """
    import torch
    from vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant import (
        fused_inv_rope_fp8_quant,
    )

    quantised, scale = fused_inv_rope_fp8_quant(
        o,
        positions,
        cos_sin_cache,
        n_groups=n_groups,
        heads_per_group=heads_per_group,
        nope_dim=nope_dim,
        rope_dim=rope_dim,
        tma_aligned_scales=False,
    )
    out = torch.empty((o.shape[0], n_groups, o_lora_rank), device=o.device, dtype=torch.bfloat16)
    scales = wo_a.weight_scale if hasattr(wo_a, "weight_scale") else wo_a.weight_scale_inv
    grouped = selection.operation("fp8_o_proj").grouped(wo_a.weight, scales, n_groups)
    arguments = (quantised, scale, *grouped, out)
    selection.launcher("fp8_o_proj", *arguments)(*arguments)
    return out


def _install(edit: Edit) -> None:
    name = "deep_gemm_fp8_o_proj"
    edit.replace(name, served(edit.original(name)))


PATCH = Patch(
    id="w4-o-proj",
    title="The o-projection's product has no SM120 kernel",
    layer="config",
    targets=(FLASHINFER, FLASHMLA),
    upstream_sha256=pinned(
        FLASHINFER,
        FLASHMLA,
        SOURCE,
        "vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant:fused_inv_rope_fp8_quant",
    ),
    vllm=("0.27.1",),
    symptom="'Unsupported architecture' from fp8_einsum in the first attention layer.",
    cause="nvidia/ops/o_proj.py:13-72 always takes DeepGEMM, with packed INT32 scales from "
    "capability 10 up, and with a 3-D wo_a that only DeepGEMM's own post-processing makes.",
    fix="Both consumers' name is served by the overlay's block-scaled kernel, with float32 scales.",
    upstream="SM120 kernels came with #52035 (0.28.0).",
    remove_when="The vendored DeepGEMM has SM120 kernels (0.28.0).",
    constraint="SM121 has no kernel for it in DeepGEMM 2.6.1.",
    applies=selection.skip_reason,
    install=_install,
)
