"""W1, W2 and #1: combinations that die late on SM12x are refused before anything is loaded."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "vllm.engine.arg_utils:EngineArgs.create_engine_config"
ARCHITECTURES = frozenset({"DeepseekV4ForCausalLM"})
MOE = frozenset({"auto", "deep_gemm", "deep_gemm_mega_moe"})
LINEAR = frozenset({"auto", "deep_gemm"})


class RefusedError(ValueError):
    """A configuration that stock accepts and that cannot work on this device."""


def complaints(
    *, linear: str, moe: str, use_deep_gemm: bool, block_size: int | None, sm120_deep_gemm: bool
) -> list[str]:
    """What is wrong with a DeepSeek-V4 configuration for compute capability 12.x.

    Args:
        linear: `--linear-backend`.
        moe: `--moe-backend`.
        use_deep_gemm: `VLLM_USE_DEEP_GEMM`.
        block_size: `--block-size`; None where the engine chooses.
        sm120_deep_gemm: A `deep_gemm` package is installed; vLLM then prefers it to its own.
    """
    found = []
    own = "vLLM 0.27.1's own DeepGEMM has no SM120 kernels"
    if linear in LINEAR and use_deep_gemm and not sm120_deep_gemm:
        found.append(
            f"--linear-backend {linear} takes DeepGEMM for FP8 linears (W1): {own}; set "
            "--linear-backend triton"
        )
    if moe in MOE and not sm120_deep_gemm:
        found.append(
            f"--moe-backend {moe} takes DeepGEMM for MXFP4 experts (W2): {own}; set "
            "--moe-backend marlin"
        )
    if block_size not in {None, 256}:
        found.append(
            f"--block-size {block_size} has no SM120 sparse-MLA kernel (#1, #2); leave it out or "
            "set 256"
        )
    return found


def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `EngineArgs.create_engine_config`: look at what came out of it."""

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - vLLM's
        from vllm import envs

        config = original(self, *args, **kwargs)
        if ARCHITECTURES.isdisjoint(config.model_config.architectures or ()):
            return config
        problems = complaints(
            linear=config.kernel_config.linear_backend,
            moe=config.kernel_config.moe_backend,
            use_deep_gemm=bool(envs.VLLM_USE_DEEP_GEMM),
            block_size=self.block_size,
            sm120_deep_gemm=find_spec("deep_gemm") is not None,
        )
        if problems:
            raise RefusedError("; ".join(problems))
        return config

    return create_engine_config


def _install(edit: Edit) -> None:
    name = "EngineArgs.create_engine_config"
    edit.replace(name, refusing(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_sm12x("the stock choices work")


PATCH = Patch(
    id="w1-w2-refusals",
    title="DeepGEMM is chosen where it has no kernels",
    layer="config",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        "vllm.model_executor.kernels.linear:_POSSIBLE_FP8_BLOCK_KERNELS",
        "vllm.model_executor.layers.fused_moe.oracle.mxfp4:_get_priority_backends",
        "vllm.utils.deep_gemm:_import_deep_gemm",
        "vllm.platforms.cuda:CudaPlatformBase.support_deep_gemm",
    ),
    vllm=("0.27.1",),
    symptom="RuntimeError 'Unknown SF transformation' or 'Unsupported architecture' from DeepGEMM "
    "while the weights are processed; for other block sizes an abort in the warm-up.",
    cause="platforms/cuda.py:665 says yes to DeepGEMM for all of 12.x, while the vendored copy has "
    "sm90 and sm100 kernels only; linear/__init__.py:371 and oracle/mxfp4.py:333 then choose it.",
    fix="Refuse the configuration in the API server, with the flag to set, unless an installed "
    "`deep_gemm` package replaces the vendored one. Variants render the right flags.",
    upstream="#51758, #52732; kernels came with #52035 (0.28.0).",
    remove_when="The vendored DeepGEMM has SM120 kernels (0.28.0).",
    constraint="SM121 has no SM100 tensor memory: DeepGEMM's SM100 kernels cannot run there.",
    applies=_applies,
    install=_install,
)
