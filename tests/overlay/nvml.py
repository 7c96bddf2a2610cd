"""NVML and CUDA of a Spark, for scenarios."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

SPARK = 130_663_235_584  # total memory that CUDA reports on a Spark, give or take a page


def fake_nvml(total, error="NVMLError_NotSupported"):
    """NVML of one GPU that has a name and a driver, and memory if `total` is given."""
    from types import SimpleNamespace

    import torch
    from vllm.platforms import cuda
    from vllm.third_party import pynvml

    def memory(_handle):
        if total is None:
            raise getattr(pynvml, error)
        return SimpleNamespace(total=total)

    for name in ("nvmlInit", "nvmlShutdown"):
        setattr(pynvml, name, lambda: None)
    pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
    pynvml.nvmlDeviceGetName = lambda _: "NVIDIA GB10"
    pynvml.nvmlDeviceGetMemoryInfo = memory
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory=SPARK)
    return cuda.NvmlCudaPlatform
