"""#8: stock's opt-in startup plan, repaired: keyed by inputs, decided by all ranks together."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import hashlib
import json
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("vllm.twinspark")

MODULE = "vllm.v1.worker.startup_plan"
FINGERPRINT = f"{MODULE}:compute_plan_fingerprint"
APPLICABLE = f"{MODULE}:_applicable_kv_cache_memory_bytes"
APPLY = f"{MODULE}:maybe_apply_startup_plan"
SAVE = f"{MODULE}:maybe_save_startup_plan"
MIB = 1 << 20
SLACK = 64 * MIB  # unified memory breathes by pages between two looks at it
_KEY = "twinspark_plan_key"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _driver() -> str:
    try:
        from vllm.third_party import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except (ImportError, OSError, pynvml.NVMLError):
        return ""


def inputs(vllm_config: Any, rank: int, world_size: int) -> dict[str, Any]:  # noqa: ANN401 - vLLM's
    """Everything that the profiled figure follows from, and nothing that follows from it.

    Stock's key leaves out utilization and batch sizes, and takes a hash that changes while the
    engine starts; no size of any allocation is in here.
    """
    import torch
    from vllm import __version__
    from vllm.platforms import current_platform

    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    spec, compilation = vllm_config.speculative_config, vllm_config.compilation_config
    model = vllm_config.model_config
    total = current_platform.get_device_total_memory()
    return {
        "model": [model.model, model.revision, str(model.dtype), model.max_model_len,
                  str(model.quantization)],
        "parallel": vllm_config.parallel_config.compute_hash(),
        "cache": [cache.cache_dtype, cache.gpu_memory_utilization, cache.enable_prefix_caching],
        "scheduler": [scheduler.max_num_seqs, scheduler.max_num_batched_tokens,
                      scheduler.async_scheduling],
        "speculative": [spec.method, spec.num_speculative_tokens] if spec else None,
        "graphs": [str(compilation.cudagraph_mode), compilation.cudagraph_capture_sizes],
        "device": [current_platform.get_device_name(), total // MIB,
                   str(current_platform.get_device_capability())],
        "software": [__version__, torch.__version__, torch.version.cuda, _driver(),
                     _installed("flashinfer-python"), _installed("triton"),
                     _installed("twinspark")],
        "place": [rank, world_size],
    }  # fmt: skip


def fingerprint(vllm_config: Any, rank: int, world_size: int) -> str:  # noqa: ANN401 - vLLM's
    """Key of a plan; in place of `compute_plan_fingerprint`."""
    text = json.dumps(inputs(vllm_config, rank, world_size), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def applicable(plan: dict[str, Any], current_free_memory: int) -> int | None:
    """Bytes of a plan that still fits; in place of `_applicable_kv_cache_memory_bytes`.

    Stock wants at least the free memory of the recording boot, to the byte, which unified memory
    grants by chance. What has to be free is what the engine will take: the requested memory.
    """
    found, needed = plan.get("kv_cache_memory_bytes"), plan.get("requested_memory")
    if not isinstance(found, int) or not isinstance(needed, int) or found <= 0:
        return None
    if current_free_memory + SLACK < needed:
        logger.info(
            "twinspark: startup plan not applied: %d MiB free, %d MiB requested",
            current_free_memory // MIB, needed // MIB,
        )  # fmt: skip
        return None
    return found


def vote(mine: int, world_size: int) -> int:
    """Smallest offer of all ranks; 0, which means no plan, as soon as one rank has none.

    A rank that profiles captures graphs while one that does not waits for it in a collective, and
    pools of different size make block ids of one rank invalid on the other.
    """
    if world_size <= 1:
        return mine
    import torch
    from vllm.distributed import parallel_state

    offer = torch.tensor([mine], dtype=torch.int64)
    group = parallel_state.get_world_group().cpu_group
    torch.distributed.all_reduce(offer, op=torch.distributed.ReduceOp.MIN, group=group)
    return int(offer.item())


def applying(load: Callable[[str], dict[str, Any] | None]) -> Callable[[Any], None]:
    """`maybe_apply_startup_plan` with the key taken once, before anything is allocated."""

    def maybe_apply_startup_plan(worker: Any) -> None:  # noqa: ANN401 - vLLM's Worker
        from vllm import envs

        cache = worker.cache_config
        if not envs.VLLM_ENABLE_STARTUP_PLAN or cache.kv_cache_memory_bytes is not None:
            return
        world = worker.parallel_config.world_size
        key = fingerprint(worker.vllm_config, worker.rank, world)
        setattr(worker, _KEY, key)
        plan = load(key)
        mine = applicable(plan, worker.init_snapshot.free_memory) if plan else None
        agreed = vote(mine or 0, world)
        outcome = "hit" if agreed else "voted down" if mine else "miss"
        report.current().fact("startup_plan", {"key": key, "outcome": outcome, "bytes": agreed})
        logger.info("twinspark: startup plan %s: %s, %d bytes", key, outcome, agreed)
        if agreed:
            cache.kv_cache_memory_bytes = agreed

    return maybe_apply_startup_plan


def saving(path_of: Callable[[str], str], schema: int) -> Callable[[Any, int], None]:
    """`maybe_save_startup_plan` under the key of `apply`, with the bytes that were measured."""

    def maybe_save_startup_plan(worker: Any, _suggested: int) -> None:  # noqa: ANN401 - vLLM's
        import os
        from pathlib import Path

        from vllm import envs

        key = getattr(worker, _KEY, None)
        if not envs.VLLM_ENABLE_STARTUP_PLAN or key is None:
            return
        payload = {
            "schema": schema,
            "fingerprint": key,
            # What this boot uses, not stock's suggestion, which takes the graphs off once more.
            "kv_cache_memory_bytes": int(worker.available_kv_cache_memory_bytes),
            "requested_memory": int(worker.requested_memory),
        }
        path = Path(path_of(key))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(payload), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            logger.warning("twinspark: startup plan not saved to %s: %s", path, error)

    return maybe_save_startup_plan


def _install(edit: Edit) -> None:
    edit.replace("compute_plan_fingerprint", fingerprint)
    edit.replace("_applicable_kv_cache_memory_bytes", applicable)
    edit.replace("maybe_apply_startup_plan", applying(edit.original("_load_plan")))
    schema = edit.original("PLAN_SCHEMA_VERSION")
    edit.replace("maybe_save_startup_plan", saving(edit.original("_plan_path"), schema))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("only the GPU worker has a startup plan")


PATCH = Patch(
    id="08-startup-plan",
    title="The startup plan's key, gate and figure are wrong",
    layer="platform",
    targets=(FINGERPRINT, APPLICABLE, APPLY, SAVE),
    upstream_sha256=pinned(
        FINGERPRINT,
        APPLICABLE,
        APPLY,
        SAVE,
        f"{MODULE}:_load_plan",
        f"{MODULE}:_plan_path",
        "vllm.v1.worker.gpu_worker:Worker.determine_available_memory",
        "vllm.v1.worker.gpu_worker:Worker.compile_or_warm_up_model",
    ),
    vllm=("0.27.1",),
    symptom="With VLLM_ENABLE_STARTUP_PLAN=1 a worker aborts on GB10; elsewhere plans miss for "
    "ever, survive a change of utilization, shrink the pool, or hang a second rank.",
    cause="startup_plan.py takes the key again when it saves, after the configuration has "
    "changed; leaves utilization and batch sizes out; compares free memory to the byte; lets each "
    "rank decide alone; stores a suggestion that is lower than what was measured.",
    fix="One key from inputs, taken before any allocation; gate on the requested memory; all ranks "
    "vote and take the minimum; the measured bytes are stored. With a pinned pool a plan does "
    "nothing; otherwise it keeps the pool's size equal from boot to boot and saves no time: the "
    "profile run is made all the same (H200, emulated: 6.2 and 6.6 s without, 6.8 and 7.4 with).",
    upstream="Byte-identical from 0.26.0 to 0.33.0; #57936 reports the double subtraction.",
    remove_when="Stock takes the key once and ranks agree before one skips profiling.",
    constraint="GB10's free memory is the system's, and two nodes must have equal pools.",
    applies=_applies,
    install=_install,
)
