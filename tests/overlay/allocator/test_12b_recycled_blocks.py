"""#12b: recycled SWA and compressor-state blocks keep old bytes."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "12b-recycled-blocks"


def scenario_new_blocks(needs_zeroing):
    """Blocks that each group's real manager takes for one request, and which it records."""
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config
    from vllm.v1.core.single_type_kv_cache_manager import get_manager_for_kv_cache_spec

    from overlay.deepseek import kv_cache_config, specs

    config = kv_cache_config(specs((0, 4, 128)), blocks=64)
    assert config.needs_kv_cache_zeroing
    config = generate_scheduler_kv_cache_config([config])
    pool = BlockPool(num_gpu_blocks=64, enable_caching=False, hash_block_size=256)
    seen = {}
    for index, group in enumerate(config.kv_cache_groups):
        spec = group.kv_cache_spec
        manager = get_manager_for_kv_cache_spec(
            spec, 4096, 65_536, block_pool=pool, enable_caching=False, kv_cache_group_id=index,
            scheduler_block_size=256, needs_kv_cache_zeroing=needs_zeroing,
        )  # fmt: skip
        taken = manager.allocate_new_blocks("r", 3 * spec.block_size, 3 * spec.block_size)
        name = f"{type(spec).__name__} block {spec.block_size}"
        seen[name] = [[b.block_id for b in taken], manager.take_new_block_ids()]
    return seen


def scenario_stale_bytes():
    """A finished request's bytes in the block that a window group takes over."""
    from overlay.deepseek import Cache, specs

    seen = scenario_new_blocks(True)
    cache = Cache(specs((0, 4, 128)), blocks=64)
    cache.backing.fill_(255)  # NaN as fp32 and as E4M3
    told = sorted(block for _, recorded in seen.values() for block in recorded)
    cache.zeroer().zero_block_ids(told)
    taken = {name: blocks for name, (blocks, _) in seen.items()}
    return {n: int(cache.backing[b].count_nonzero()) for n, b in taken.items()}


def test_recycled__reproduces_on_pristine(pristine):
    seen = pristine.run(scenario_new_blocks, True)
    recorded = {name: bool(ids) for name, (_, ids) in seen.items()}
    assert any(name.startswith("SlidingWindowMLASpec") for name in recorded)
    assert recorded == {name: name.startswith("MLAAttentionSpec") for name in recorded}


def test_recycled__fixed(overlaid):
    seen = overlaid.run(scenario_new_blocks, True)
    assert all(taken == recorded and taken for taken, recorded in seen.values())
    assert len(seen) >= 3


def test_recycled__no_stale_byte_is_left(overlaid):
    assert set(overlaid.run(scenario_stale_bytes).values()) == {0}


def test_recycled__nothing_is_recorded_where_nothing_is_zeroed(overlaid):
    assert not any(ids for _, ids in overlaid.run(scenario_new_blocks, False).values())


def test_recycled__upstream_unchanged():
    unchanged(PATCH)
