"""#6: NVML cannot tell GB10's memory; ask CUDA, outside this process if it has no context."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "vllm.platforms.cuda:NvmlCudaPlatform.get_device_total_memory"
MIB = 1 << 20


@functools.cache
def _from_cuda(device: int) -> int:
    """Total memory of a device in bytes, floored to MiB.

    Integrated GPUs report what the kernel left of the system's memory, and that moves by pages
    from boot to boot and between two equal machines: whole MiB are the same on both.
    """
    from vllm.utils.platform_utils import cuda_get_device_properties

    # Does it in a forked helper when CUDA is not initialised here (platform_utils.py:28).
    (total,) = cuda_get_device_properties(device, ("total_memory",))
    return int(total) // MIB * MIB


def falling_back(original: classmethod[Any, Any, int]) -> classmethod[Any, Any, int]:
    """Wrap the class method: NVML's figure, or CUDA's where NVML has none."""
    asked: Callable[..., int] = original.__func__

    def get_device_total_memory(cls: Any, device_id: int = 0) -> int:  # noqa: ANN401 - vLLM's
        from vllm.third_party import pynvml

        try:
            return asked(cls, device_id)
        except pynvml.NVMLError_NotSupported:
            total = _from_cuda(device_id)
            report.current().fact("device_total_memory_mib", total // MIB)
            return total

    return classmethod(functools.wraps(asked)(get_device_total_memory))


def _install(edit: Edit) -> None:
    name = "NvmlCudaPlatform.get_device_total_memory"
    edit.replace(name, falling_back(edit.original(name)))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("there is no NVML")


PATCH = Patch(
    id="06-device-memory",
    title="NVML cannot tell GB10's memory",
    layer="platform",
    targets=(TARGET,),
    upstream_sha256=pinned(
        TARGET,
        "vllm.utils.platform_utils:cuda_get_device_properties",
        "vllm.engine.arg_utils:EngineArgs.get_batch_defaults",
    ),
    vllm=("0.27.1",),
    symptom="The API server silently takes 2048 batched tokens and 256 sequences for defaults; "
    "with VLLM_ENABLE_STARTUP_PLAN=1 the worker aborts.",
    cause="platforms/cuda.py:770 lets NVMLError_NotSupported through; arg_utils.py:2533 swallows "
    "it as 'no memory', startup_plan.py:66 does not.",
    fix="Where NVML says not supported, take CUDA's total, floored to MiB; any other NVML error "
    "still raises. Default batch sizes rise fourfold by this: variants pin them.",
    upstream="#57378; the same in 0.33.0.",
    remove_when="get_device_total_memory returns a number on GB10 (0.33.0).",
    constraint="GB10's memory is the system's (unified): NVML has no figure for it.",
    applies=_applies,
    install=_install,
)
