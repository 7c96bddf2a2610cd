"""Faults of memory, packages, toolchain and the engine's rendered environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .faults_kit import Fault
from .files import ENGINE_ENV, lines, node_env

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import State

ENGINE = "/opt/twinspark/current/etc/flash-tp2/engine.env"
NODE = "/opt/twinspark/current/etc/flash-tp2/node.env"


def _file(path: str, text: str | None) -> Callable[[State], None]:
    def break_(state: State) -> None:
        state.files[path] = text

    return break_


def _engine(**change: str) -> Callable[[State], None]:
    return _file(
        ENGINE, lines({key: value for key, value in {**ENGINE_ENV, **change}.items() if value})
    )


def _node(**change: str) -> Callable[[State], None]:
    def break_(state: State) -> None:
        values = {**node_env(state), **change}
        state.files[NODE] = lines({key: value for key, value in values.items() if value})

    return break_


def _log(line: str, times: int = 1) -> Callable[[State], None]:
    def break_(state: State) -> None:
        state.dmesg.extend([line] * times)

    return break_


def _earlyoom(arguments: str) -> Callable[[State], None]:
    def break_(state: State) -> None:
        state.units["earlyoom.service"] = ("loaded", "active", "enabled")
        state.files["/etc/default/earlyoom"] = f'EARLYOOM_ARGS="{arguments}"\n'

    return break_


def _kho_off(state: State) -> None:
    state.kernel = "7.0.0-1019-nvidia"
    state.boot_kernels, state.module_kernels = [state.kernel], [state.kernel]
    state.cmdline += " kho=off"


def _page_cache(state: State) -> None:
    state.files["/proc/meminfo"] = MEMINFO
    state.files["/proc/4242/maps"] = None  # free memory is judged before the engine starts


MEMINFO = (
    "MemTotal:       127600000 kB\nMemFree:         21000000 kB\nMemAvailable:   121000000 kB\n"
    "Cached:         101000000 kB\nSwapTotal:       16777212 kB\nSwapFree:        16777212 kB\n"
    "CmaTotal:          131072 kB\nCmaFree:           130000 kB\n"
)
# not the release's own: another one came first on the loader's path
NCCL = "7f00-7f10 r-xp 00000000 00:00 1 /usr/lib/aarch64-linux-gnu/{}\n"
PROBE = "/opt/twinspark/cuda/13.3/probe.json"

HOST = {
    "nccl_2_28_9": Fault(
        "the running engine maps NCCL 2.28.9",
        7,
        "nccl_mapped",
        _file("/proc/4242/maps", NCCL.format("libnccl.so.2.28.9")),
    ),
    "nvls_on": Fault("NCCL_NVLS_ENABLE is not 0", 9, "nccl_nvls", _engine(NCCL_NVLS_ENABLE="")),
    "memdesc_errors": Fault(
        "_memdescAlloc errors in the kernel's log",
        15,
        "kernel_memory_errors",
        _log("NVRM: nvAssertFailedNoLog: _memdescAllocInternal NV_ERR_NO_MEMORY (0x51)", 65),
    ),
    "page_cache_full": Fault(
        "the page cache holds what the engine needs", 16, "memory_free", _page_cache
    ),
    "ptxas_other": Fault(
        "Triton would use another ptxas than its own",
        17,
        "ptxas_path",
        _engine(TRITON_PTXAS_BLACKWELL_PATH="/usr/bin/ptxas"),
    ),
    "ptxas_old": Fault(
        "the toolkit cannot make sm_121a",
        17,
        "toolkit_compiles",
        _file(PROBE, json.dumps({"nvcc": "13.3", "target": "sm_121a", "sass": False, "ptx": 0})),
    ),
    "toolkit_unlinked": Fault(
        "libraries do not link with the toolkit",
        19,
        "toolkit_compiles",
        _file(PROBE, json.dumps({"target": "sm_121a", "sass": True, "ptx": 0, "links": False})),
    ),
    "no_python_h": Fault(
        "no Python.h", 18, "python_headers", _file("/usr/include/python3.12/Python.h", None)
    ),
    "ninja_missing": Fault("no ninja", 19, "ninja", _file("/usr/bin/ninja", None)),
    "path_without_nvcc": Fault(
        "nvcc is not on the unit's PATH",
        19,
        "unit_path",
        _engine(PATH="/opt/twinspark/current/venv/bin:/usr/bin:/bin"),
    ),
    "arch_list_ptx": Fault(
        "kernels would be built as PTX", 20, "arch_list", _engine(TORCH_CUDA_ARCH_LIST="12.0+PTX")
    ),
    "startup_plan_on": Fault(
        "the start-up plan is switched on",
        23,
        "startup_plan_off",
        _engine(VLLM_ENABLE_STARTUP_PLAN="1"),
    ),
    "same_host_ip": Fault(
        "both ranks have one VLLM_HOST_IP", 28, "host_ip_distinct", _node(VLLM_HOST_IP="10.77.1.12")
    ),
    "gloo_unset": Fault(
        "gloo picks an interface by itself", 30, "gloo_interface", _node(GLOO_SOCKET_IFNAME="")
    ),
    "hub_online": Fault(
        "the engine may ask the model hub", 38, "hub_offline", _engine(HF_HUB_OFFLINE="")
    ),
    "earlyoom_kills": Fault(
        "earlyoom may kill the engine", 40, "earlyoom_spares", _earlyoom("-r 3600 -m 5")
    ),
    "polkitd_bloat": Fault(
        "polkitd holds 3.4 GiB",
        41,
        "host_daemons",
        _file("/proc/977/status", "Name:\tpolkitd\nVmRSS:\t 3565158 kB\n"),
    ),
    "ssh_keys_shared": Fault(
        "both nodes have the factory image's SSH host key",
        47,
        "ssh_keys_unique",
        _file("/etc/ssh/ssh_host_ed25519_key.pub", f"ssh-ed25519 AAAA{'b' * 40} root@spark\n"),
    ),
    "min_free_4g": Fault(
        "vm.min_free_kbytes is 4 GiB",
        53,
        "min_free",
        _file("/proc/sys/vm/min_free_kbytes", "4194304\n"),
    ),
    "swappiness_default": Fault(
        "vm.swappiness is 60", 54, "swappiness", _file("/proc/sys/vm/swappiness", "60\n")
    ),
    "memlock_low": Fault(
        "the unit may lock 8 MiB only",
        55,
        "memlock",
        _file("/etc/systemd/system/vllm-deepseek-mxfp4@.service", "LimitMEMLOCK=8388608\n"),
    ),
    "system_cuda_moved": Fault(
        "/usr/local/cuda points to 13.3",
        57,
        "system_cuda",
        _file("/usr/local/cuda", "-> /usr/local/cuda-13.3"),
    ),
    "toolkit_missing": Fault(
        "no nvcc in the prefix", 57, "toolkit_present", _file("/usr/local/cuda-13.3/bin/nvcc", None)
    ),
    # healthy in another shape
    "kho_off": Fault("kernel 7.0.0-1019 with kho=off", 1, "", _kho_off),
    "earlyoom_spares": Fault(
        "earlyoom runs and avoids the engine",
        40,
        "",
        _earlyoom("-m 2 --avoid '^(vllm|VLLM::.*|python3.*)$'"),
    ),
}
