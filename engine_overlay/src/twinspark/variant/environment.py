"""The environment of the engine's processes: what is equal on all nodes, and what one node adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinspark.variant.keys import EngineEnv, NodeEnv, key_of
from twinspark.variant.planner import GIB, granted_bytes

if TYPE_CHECKING:
    from twinspark.variant.host import Host
    from twinspark.variant.schema import Variant

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Nothing is fetched or reported while serving: the checkpoint is local and verified.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

# Two RoCE functions of one cable, two nodes; agreed in the field. GB10 has no NVLink and no
# GPUDirect.
_NCCL = {
    "NCCL_NET": "IB",
    "NCCL_IB_DISABLE": "0",
    "NCCL_CROSS_NIC": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
    "NCCL_IB_ADDR_FAMILY": "AF_INET",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders on a node.

    Attributes:
        release: The release that runs, or the link to it.
        cache: Where compiled kernels are kept between starts; the same path on all nodes. Below the
            release, since what one engine compiled is nothing to another; a link to /var/cache.
        runtime: Folder that systemd makes afresh at every start.
    """

    release: str = "/opt/twinspark/current"
    cache: str = "/opt/twinspark/current/cache"
    runtime: str = "/run/twinspark"


def engine_environment(variant: Variant, layout: Layout) -> dict[str, str]:
    """Variables of engine.env; `VLLM_PLUGINS` is absent on purpose: unset, every plugin loads."""
    variables = {
        "PATH": f"{layout.release}/venv/bin:{_SYSTEM_PATH}",
        "TWINSPARK_REPORT_DIR": f"{layout.runtime}/overlay",
        "TWINSPARK_MODEL": variant.MODEL,  # the unit holds its stamp against it before a start
        **_memory(variant),
    }
    variables |= _OFFLINE | _caches(layout.cache)
    if variant.is_deepseek:
        variables |= _gpu_caches(layout.cache) | _toolchain(variant, layout)
    return variables | _keys(variant, EngineEnv)


def node_environment(variant: Variant, host: Host) -> dict[str, str]:
    """Variables of node.env: who this node is, and for GPUs which links NCCL takes."""
    first = host.rails[0]
    variables = {
        "TWINSPARK_VARIANT": variant.name,
        "TWINSPARK_RANK": str(host.rank),
        "TWINSPARK_NNODES": str(host.nnodes),
        "VLLM_HOST_IP": first.ip,
        "GLOO_SOCKET_IFNAME": first.interface,
    }
    if not variant.is_deepseek:
        return variables
    variables |= {"NCCL_SOCKET_IFNAME": first.interface} | _NCCL
    if host.hcas:
        variables["NCCL_IB_HCA"] = "=" + ",".join(host.hcas)  # "=": whole names, not prefixes
    if host.gid_index is not None:
        variables["NCCL_IB_GID_INDEX"] = str(host.gid_index)
    return variables | _keys(variant, NodeEnv)


def _memory(variant: Variant) -> dict[str, str]:
    """What must be free before a start, GiB; a GPU cannot take what page cache holds, a CPU can."""
    if variant.is_deepseek:
        granted = granted_bytes(variant.GPU_MEMORY_UTILIZATION) / GIB
        return {"TWINSPARK_MEMORY_GIB": f"{granted:.2f}", "TWINSPARK_MEMORY_OF": "free"}
    pool = variant.VLLM_CPU_KVCACHE_SPACE
    return {"TWINSPARK_MEMORY_GIB": f"{pool:.2f}", "TWINSPARK_MEMORY_OF": "available"}


def _keys(variant: Variant, place: type[EngineEnv | NodeEnv]) -> dict[str, str]:
    variables = {}
    for name, field in type(variant).model_fields.items():
        key = key_of(field)
        value = getattr(variant, name)
        if isinstance(key.to, place) and variant.takes(key) and value is not None:
            variables[key.to.name] = str(int(value)) if isinstance(value, bool) else str(value)
    return variables


def _caches(root: str) -> dict[str, str]:
    return {
        "XDG_CACHE_HOME": root,
        "HF_HOME": f"{root}/hf",
        "VLLM_CACHE_ROOT": f"{root}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{root}/inductor",
    }


def _gpu_caches(root: str) -> dict[str, str]:
    return {
        "TRITON_CACHE_DIR": f"{root}/triton",
        "TILELANG_CACHE_DIR": f"{root}/tilelang",
        "FLASHINFER_WORKSPACE_BASE": f"{root}/flashinfer",
        "CUTE_DSL_CACHE_DIR": f"{root}/cute-dsl",
        "DG_JIT_CACHE_DIR": f"{root}/deep-gemm",
        "CUDA_CACHE_PATH": f"{root}/cuda",
    }


def _toolchain(variant: Variant, layout: Layout) -> dict[str, str]:
    """The toolkit that compiles at run time; its nvcc and the release's ninja are on PATH."""
    home, arch = variant.CUDA_HOME, variant.TORCH_CUDA_ARCH_LIST
    segments = "True" if variant.EXPANDABLE_SEGMENTS else "False"
    return {
        "PATH": f"{layout.release}/venv/bin:{home}/bin:{_SYSTEM_PATH}",
        "FLASHINFER_CUDA_ARCH_LIST": arch,
        "CUTE_DSL_ARCH": f"sm_{arch.replace('.', '')}",
        "DG_JIT_USE_NVRTC": "0",
        "DG_JIT_NVCC_COMPILER": f"{home}/bin/nvcc",
        "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{segments}",
        "TILELANG_CLEANUP_TEMP_FILES": "1",
    }
