"""#2: ZeroDivisionError at block size 64."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "02-block-size"


def scenario_size_the_cache(block_size):
    """Pages of a net with C4A and C128A layers, then what the pool sizer does with them."""
    from types import SimpleNamespace

    from vllm.v1.core import kv_cache_utils as utils

    from overlay.deepseek import config, specs

    try:
        layers = specs(block_size=block_size)
        groups = utils.get_kv_cache_groups(config(), layers)
        sizing = config()
        sizing.model_config = SimpleNamespace(max_model_len=65536)
        sizing.parallel_config = SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        )
        sizing.max_in_flight_tokens = 4096
        needed = utils._max_memory_usage_bytes_from_groups(sizing, groups)
    except (ZeroDivisionError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return needed > 0


def test_block_size__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_size_the_cache, 64).startswith("ZeroDivisionError")


@pytest.mark.parametrize("block_size", [64, 100, 2])
def test_block_size__fixed(overlaid, block_size):
    said = overlaid.run(scenario_size_the_cache, block_size)
    assert said.startswith(f"ValueError: block size {block_size} is not a multiple")
    assert "--block-size 256" in said


@pytest.mark.parametrize("block_size", [128, 256, 512])
def test_block_size__whole_blocks_stay(overlaid, block_size):
    assert overlaid.run(scenario_size_the_cache, block_size) is True


def test_block_size__upstream_unchanged():
    unchanged(PATCH)
