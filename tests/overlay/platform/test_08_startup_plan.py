"""#8: the startup plan's key, gate and figure are wrong."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "08-startup-plan"
GIB = 1 << 30


def worker_of(boot):
    """A worker as the two plan functions see it.

    Args:
        boot: Overrides: `utilization`, `seqs`, `tokens`, `graphs`, `free` (bytes), `rank`,
            `world`, `total` (bytes; NVML's), `blocks` (what the engine has allocated).
    """
    from types import SimpleNamespace

    import vllm.platforms
    from vllm.v1.worker import startup_plan

    from overlay.nvml import fake_nvml

    platform = fake_nvml(boot.get("total", 128 * GIB))()
    platform.get_device_name = lambda: "NVIDIA GB10"
    platform.get_device_capability = lambda: "12.1"
    startup_plan.current_platform = vllm.platforms._current_platform = platform
    world = boot.get("world", 1)
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            model="m", revision="7872f01b", dtype="bfloat16", max_model_len=1 << 20,
            quantization="fp8",
        ),
        parallel_config=SimpleNamespace(world_size=world, compute_hash=lambda: "tp2"),
        cache_config=SimpleNamespace(
            cache_dtype="fp8_ds_mla", gpu_memory_utilization=boot.get("utilization", 0.8),
            enable_prefix_caching=True, kv_cache_memory_bytes=boot.get("pinned"),
            num_gpu_blocks=boot.get("blocks"), block_size=boot.get("block_size", 256),
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=boot.get("seqs", 6), max_num_batched_tokens=boot.get("tokens", 4096),
            async_scheduling=True,
        ),
        speculative_config=SimpleNamespace(method="dspark", num_speculative_tokens=5),
        compilation_config=SimpleNamespace(
            cudagraph_mode=boot.get("graphs", "FULL"), cudagraph_capture_sizes=[6, 12]
        ),
    )  # fmt: skip
    # Stock hashes model, cache, parallel and compilation configs: neither utilization nor seqs.
    config.compute_hash = lambda: (
        f"{config.cache_config.block_size} {config.compilation_config.cudagraph_mode}"
    )
    requested = int(boot.get("utilization", 0.8) * 120 * GIB)
    return SimpleNamespace(
        vllm_config=config, cache_config=config.cache_config, rank=boot.get("rank", 0),
        parallel_config=config.parallel_config, requested_memory=requested,
        init_snapshot=SimpleNamespace(free_memory=boot.get("free", 115 * GIB)),
        available_kv_cache_memory_bytes=boot.get("available", 20 * GIB),
    )  # fmt: skip


def scenario_boots(cache, boots):
    """Boots after one another over one cache folder: the pool's bytes taken from a plan, or None.

    A boot may change the configuration as the engine does while it starts (`later`).
    """
    import os

    os.environ["VLLM_ENABLE_STARTUP_PLAN"] = "1"
    os.environ["VLLM_CACHE_ROOT"] = cache
    from vllm.v1.worker import startup_plan

    taken = []
    for boot in boots:
        worker = worker_of(boot)
        startup_plan.maybe_apply_startup_plan(worker)
        taken.append(worker.cache_config.kv_cache_memory_bytes)
        for field, value in boot.get("later", {}).items():
            owner = worker.vllm_config.compilation_config
            if field != "cudagraph_mode":
                owner = worker.cache_config
            setattr(owner, field, value)
        # gpu_worker.py:791 suggests what is left after graphs and 150 MiB, and saves that.
        suggested = worker.available_kv_cache_memory_bytes - GIB
        if taken[-1] is None:
            startup_plan.maybe_save_startup_plan(worker, suggested)
    return taken


def scenario_two_ranks(cache, second_rank_has_plan):
    """Two rank processes with a real gloo group: what each takes from its plan."""
    import multiprocessing
    import os

    os.environ["VLLM_ENABLE_STARTUP_PLAN"] = "1"
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def rank_process(rank):
        from types import SimpleNamespace

        import torch
        from vllm.distributed import parallel_state
        from vllm.v1.worker import startup_plan

        os.environ["VLLM_CACHE_ROOT"] = f"{cache}/rank{rank}"
        store = f"file://{cache}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        group = SimpleNamespace(cpu_group=torch.distributed.group.WORLD)
        parallel_state.get_world_group = lambda: group
        boot = {"rank": rank, "world": 2, "available": (20 + rank) * GIB}
        if rank == 0 or second_rank_has_plan:
            first = worker_of(boot)
            key = startup_plan.compute_plan_fingerprint(first.vllm_config, rank, 2)
            first.twinspark_plan_key = key
            startup_plan.maybe_save_startup_plan(first, 0)
        worker = worker_of(boot)
        startup_plan.maybe_apply_startup_plan(worker)
        results.put([rank, worker.cache_config.kv_cache_memory_bytes])

    processes = [context.Process(target=rank_process, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    taken = dict(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    return [taken[0], taken[1]]


def scenario_fingerprint(boot):
    from vllm.v1.worker import startup_plan

    worker = worker_of(boot)
    return startup_plan.compute_plan_fingerprint(worker.vllm_config, worker.rank, 1)


FULL = {"later": {"cudagraph_mode": "FULL_AND_PIECEWISE"}}  # what the engine makes of FULL


def test_plan__reproduces_on_pristine(pristine, tmp_path):
    boots = pristine.run(scenario_boots, str(tmp_path / "a"), [FULL, FULL])
    assert boots == [None, None], "FULL resolves to another mode before the save: always a miss"
    changed = [{"utilization": 0.8, "seqs": 6}, {"utilization": 0.5, "seqs": 16}]
    boots = pristine.run(scenario_boots, str(tmp_path / "b"), changed)
    assert boots == [None, 19 * GIB], "a plan survives a change of utilization and is too small"
    page = [{"free": 115 * GIB}, {"free": 115 * GIB - 4096}]
    assert pristine.run(scenario_boots, str(tmp_path / "c"), page) == [None, None]
    assert "NotSupported" in pristine.outcome(scenario_fingerprint, {"total": None})["error"]


def test_plan__fixed(overlaid, tmp_path):
    assert overlaid.run(scenario_boots, str(tmp_path / "a"), [FULL, FULL]) == [None, 20 * GIB]
    page = [{"free": 115 * GIB}, {"free": 115 * GIB - 4096}]
    assert overlaid.run(scenario_boots, str(tmp_path / "c"), page) == [None, 20 * GIB]
    assert len(overlaid.run(scenario_fingerprint, {"total": None})) == 16


@pytest.mark.parametrize(
    "change", [{"utilization": 0.5}, {"seqs": 16}, {"tokens": 8192}, {"graphs": "PIECEWISE"}]
)
def test_plan__is_not_carried_over_a_changed_input(overlaid, tmp_path, change):
    assert overlaid.run(scenario_boots, str(tmp_path), [{}, change]) == [None, None]


def test_plan__needs_the_requested_memory_to_be_free(overlaid, tmp_path):
    boots = [{}, {"free": 90 * GIB}, {"free": 97 * GIB}]
    assert overlaid.run(scenario_boots, str(tmp_path), boots) == [None, None, 20 * GIB]


def test_plan__leaves_a_pinned_pool_alone(overlaid, tmp_path):
    boots = [{"pinned": 7 * GIB}, {"pinned": 7 * GIB}]
    assert overlaid.run(scenario_boots, str(tmp_path), boots) == [7 * GIB] * 2
    assert not list(tmp_path.rglob("*.json"))


def test_fingerprint__does_not_move_with_what_was_allocated(overlaid):
    once = overlaid.run(scenario_fingerprint, {"blocks": 21_000})
    twice = overlaid.run(scenario_fingerprint, {"blocks": 42_000, "block_size": 4})
    assert once == twice


def test_fingerprint__does_not_move_with_a_page_of_total_memory(overlaid):
    seen = [overlaid.run(scenario_fingerprint, {"total": 128 * GIB + p}) for p in (4096, 8192)]
    assert seen[0] == seen[1]


def test_vote__asymmetric_hit_is_a_miss_on_both(overlaid, tmp_path):
    assert overlaid.run(scenario_two_ranks, str(tmp_path), False) == [None, None]


def test_vote__both_take_the_smaller_pool(overlaid, tmp_path):
    assert overlaid.run(scenario_two_ranks, str(tmp_path), True) == [20 * GIB] * 2


def test_vote__asymmetric_hit_reproduces_on_pristine(pristine, tmp_path):
    """Rank 0 finds a plan, rank 1 none: one skips profiling, the other captures graphs."""
    root = str(tmp_path)
    first = pristine.run(scenario_boots, root, [{"rank": 0}, {"rank": 0}, {"rank": 1}])
    assert first == [None, 19 * GIB, None]


def test_plan__upstream_unchanged():
    unchanged(PATCH)
