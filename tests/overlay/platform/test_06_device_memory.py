"""#6: NVML cannot tell GB10's memory."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from overlay.nvml import SPARK, fake_nvml

pytestmark = pytest.mark.vllm
PATCH = "06-device-memory"
MIB = 1 << 20


def scenario_total(total, error="NVMLError_NotSupported"):
    from vllm.third_party import pynvml

    platform = fake_nvml(total, error)
    try:
        return platform.get_device_total_memory()
    except pynvml.NVMLError as raised:
        return type(raised).__name__


def scenario_defaults():
    """Batch defaults that the API server takes, as arg_utils computes them."""
    import vllm.platforms
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    arg_utils.current_platform = vllm.platforms._current_platform = fake_nvml(None)()
    tokens, sequences = arg_utils.EngineArgs.get_batch_defaults(world_size=2)
    server = UsageContext.OPENAI_API_SERVER
    return [tokens[server], sequences[server]]


def scenario_page_jitter():
    """Identity of two machines whose totals differ by one page."""
    from types import SimpleNamespace

    import torch

    platform = fake_nvml(None)
    first = platform.get_device_total_memory()
    from twinspark.patches.platform import device_memory

    device_memory._from_cuda.cache_clear()
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory=SPARK - 4096)
    return [first, platform.get_device_total_memory()]


def test_total_memory__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_total, None) == "NVMLError_NotSupported"
    assert pristine.run(scenario_defaults) == [2048, 256]


def test_total_memory__fixed(overlaid):
    assert overlaid.run(scenario_total, None) == 124_610 * MIB
    assert overlaid.run(scenario_defaults) == [8192, 1024]


def test_total_memory__does_not_move_with_a_page(overlaid):
    assert overlaid.run(scenario_page_jitter) == [124_610 * MIB] * 2


def test_total_memory__nvml_keeps_the_word_where_it_knows(overlaid):
    assert overlaid.run(scenario_total, 85_000_000_001) == 85_000_000_001


def test_total_memory__other_nvml_errors_still_raise(overlaid):
    assert overlaid.run(scenario_total, None, "NVMLError_GpuIsLost") == "NVMLError_GpuIsLost"


def test_total_memory__upstream_unchanged():
    unchanged(PATCH)
