"""W1, W2, #1: combinations that die late on SM12x are refused early."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark.patches.config.deepgemm_refusals import PATCH as RECORD
from twinspark.patches.config.deepgemm_refusals import complaints
from twinspark.patching import Context

PATCH = "w1-w2-refusals"
GOOD = {
    "linear": "triton", "moe": "marlin", "use_deep_gemm": True, "block_size": 256,
    "sm120_deep_gemm": False,
}  # fmt: skip


def scenario_chosen_on_sm121():
    """What stock's own lists put first on capability 12.1."""
    from types import SimpleNamespace

    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability, PlatformEnum

    class Spark(CudaPlatformBase):
        @classmethod
        def get_device_capability(cls, device_id=0):  # noqa: ARG003 - the platform's signature
            return DeviceCapability(12, 1)

    mxfp4.current_platform = SimpleNamespace(is_rocm=lambda: False, is_xpu=lambda: False)
    order = [k.__name__ for k in linear._POSSIBLE_FP8_BLOCK_KERNELS[PlatformEnum.CUDA]]
    return {
        "says yes": bool(Spark.support_deep_gemm()),
        "linear": order[:2],
        "moe": [backend.name for backend in mxfp4._get_priority_backends()][:2],
    }


def scenario_sm120_files():
    """SM120 kernels in the wheel's own DeepGEMM."""
    from pathlib import Path

    import vllm

    root = Path(vllm.__file__).parent / "third_party/deep_gemm"
    return sorted(path.name for path in root.rglob("*") if "sm120" in path.name)


def scenario_create(architecture, flags):
    """`EngineArgs.create_engine_config` with stock's body replaced by a ready configuration."""
    import os
    from types import SimpleNamespace

    from twinspark.patches.config import deepgemm_refusals

    os.environ["VLLM_USE_DEEP_GEMM"] = "1"
    config = SimpleNamespace(
        model_config=SimpleNamespace(architectures=[architecture]),
        kernel_config=SimpleNamespace(linear_backend=flags[0], moe_backend=flags[1]),
    )
    wrapped = deepgemm_refusals.refusing(lambda _self: config)
    try:
        return wrapped(SimpleNamespace(block_size=flags[2])) is config
    except ValueError as error:
        return str(error)


@pytest.mark.vllm
def test_choice__reproduces_on_pristine(pristine):
    seen = pristine.run(scenario_chosen_on_sm121)
    assert seen["says yes"] is True
    assert any("DeepGemm" in name or "DeepGEMM" in name for name in seen["linear"])
    assert "DEEPGEMM_MXFP4" in seen["moe"]
    assert pristine.run(scenario_sm120_files) == []


@pytest.mark.vllm
def test_choice__fixed(overlaid):
    said = overlaid.run(scenario_create, "DeepseekV4ForCausalLM", ["auto", "auto", 64])
    assert "--linear-backend triton" in said
    assert "--moe-backend marlin" in said
    assert "--block-size 64" in said
    assert overlaid.run(scenario_create, "DeepseekV4ForCausalLM", ["triton", "marlin", None])
    assert overlaid.run(scenario_create, "LlamaForCausalLM", ["auto", "auto", 16]) is True


@pytest.mark.vllm
def test_choice__upstream_unchanged():
    unchanged(PATCH)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 0),
        ({"linear": "auto"}, 1),
        ({"linear": "auto", "use_deep_gemm": False}, 0),
        ({"linear": "deep_gemm", "moe": "auto"}, 2),
        ({"linear": "auto", "moe": "auto", "sm120_deep_gemm": True}, 0),
        ({"block_size": None}, 0),
        ({"block_size": 64}, 1),
        ({"moe": "deep_gemm_mega_moe"}, 1),
    ],
)
def test_complaints__name_what_to_set(change, count):
    found = complaints(**(GOOD | change))
    assert len(found) == count
    assert all("set" in text for text in found)


def test_refusal__leaves_other_cards_alone():
    assert RECORD.applies(Context("cuda", (12, 1))) is None
    for other in (Context("cuda", (9, 0)), Context("cuda", (10, 0)), Context("cpu")):
        assert RECORD.applies(other)
