"""The files of a healthy node: what only a Spark has, and what any host has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from . import fabric

if TYPE_CHECKING:
    from .state import State

SITE = "/opt/twinspark/releases/0123456789ab/venv/lib/python3.12/site-packages"

# What the engine stage renders for GPUs, as far as the checks look at it.
ENGINE_ENV = {
    "CUDA_HOME": "/usr/local/cuda-13.3",
    "PATH": "/opt/twinspark/current/venv/bin:/usr/local/cuda-13.3/bin:/usr/sbin:/usr/bin",
    "TORCH_CUDA_ARCH_LIST": "12.1a",
    "FLASHINFER_CUDA_ARCH_LIST": "12.1a",
    "NCCL_NVLS_ENABLE": "0",
    "HF_HUB_OFFLINE": "1",
}


def node_env(state: State) -> dict[str, str]:
    """Return one node's own settings."""
    return {
        "TWINSPARK_RANK": str(state.rank),
        "VLLM_HOST_IP": state.rails[0].address.split("/")[0],
        "GLOO_SOCKET_IFNAME": state.rails[0].interface,
        "NCCL_SOCKET_IFNAME": state.rails[0].interface,
        "NCCL_IB_HCA": "=" + ",".join(rail.hca for rail in state.rails),
    }


def lines(values: dict[str, str]) -> str:
    """Return KEY=VALUE lines."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def tree(state: State) -> dict[str, str]:
    """Return path -> text of what only a Spark has, changed as the faults say."""
    files = {
        "/proc/cmdline": state.cmdline + "\n",
        "/etc/default/grub": "GRUB_DEFAULT=0\n",
        "/proc/modules": "nvidia 14454784 13 - Live 0x0\nmlx5_core 2957312 1 mlx5_ib, Live 0x0\n",
    }
    for kernel in state.boot_kernels:
        files[f"/boot/vmlinuz-{kernel}"] = ""
    for kernel in state.module_kernels:
        files[f"/lib/modules/{kernel}/kernel/nvidia-580-open/nvidia.ko"] = ""
    for rail in state.rails if state.cx7 else []:
        files[f"/sys/class/net/{rail.interface}/phys_port_name"] = rail.port_name + "\n"
        ports = f"/sys/class/infiniband/{rail.hca}/ports/1"
        for index, (gid, kind) in fabric.gids(rail).items():
            files[f"{ports}/gids/{index}"] = gid + "\n"
            files[f"{ports}/gid_attrs/types/{index}"] = kind + "\n"
            files[f"{ports}/gid_attrs/ndevs/{index}"] = rail.interface + "\n"
    for path, text in state.files.items():
        if text is None:
            files.pop(path, None)
        else:
            files[path] = text
    return files


def host_tree(state: State) -> dict[str, str]:
    """Return path -> text of what any Linux host has after the deploy, for runs without the lab."""
    letter = "ab"[state.rank]
    clock = state.clock_burn if state.clock_ignored else min(2200, state.clock_burn)
    files = {
        "/proc/meminfo": (
            "MemTotal:       127600000 kB\nMemFree:        115000000 kB\nMemAvailable:   "
            "120000000 kB\n"
            "Cached:           4000000 kB\nSwapTotal:       16777212 kB\nSwapFree:        "
            "16777212 kB\n"
            "CmaTotal:          131072 kB\nCmaFree:           130000 kB\n"
        ),
        "/run/twinspark-clock.json": json.dumps({"cap": 2200, "samples": [clock] * 8}),
        "/proc/sys/vm/swappiness": "1\n",
        "/proc/sys/vm/min_free_kbytes": "67584\n",
        "/etc/systemd/system/vllm-deepseek-mxfp4@.service": "LimitMEMLOCK=infinity\n",
        "/usr/include/python3.12/Python.h": "",
        "/usr/bin/ninja": "",
        "/etc/ssh/ssh_host_ed25519_key.pub": f"ssh-ed25519 AAAA{letter * 40} root@spark\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
        "/etc/ufw/ufw.conf": "ENABLED=no\n",
        "/etc/netplan/70-twinspark-fabric.yaml": "    enp1s0f0np0:\n    enP2p1s0f0np0:\n      "
        "mtu: 9000\n",
        "/usr/local/cuda": "-> /usr/local/cuda-13.0",
        "/usr/local/cuda-13.3/bin/nvcc": "",
        "/usr/local/cuda-13.3/bin/ptxas": "",
        "/opt/twinspark/cuda/13.3/probe.json": json.dumps(
            {"nvcc": "13.3", "target": "sm_121a", "sass": True, "ptx": 0, "links": True}
        ),
        "/opt/twinspark/current/etc/flash-tp2/engine.env": lines(ENGINE_ENV),
        "/opt/twinspark/current/etc/flash-tp2/node.env": lines(node_env(state)),
        "/etc/twinspark/fabric.json": json.dumps(
            {
                "rails": [
                    {"interface": rail.interface, "hca": rail.hca, "gid_index": 3}
                    for rail in state.rails
                ]
            }
        ),
        "/proc/4242/maps": (
            f"7f00-7f10 r-xp 00000000 00:00 1 {SITE}/nvidia/nccl/lib/libnccl.so.2\n"
        ),
        f"{SITE}/nvidia_nccl_cu13-2.29.7.dist-info/METADATA": "",
        "/proc/977/status": "Name:\tpolkitd\nVmRSS:\t   9216 kB\n",
    }
    for path, text in state.files.items():
        if text is None:
            files.pop(path, None)
        else:
            files[path] = text
    return files
