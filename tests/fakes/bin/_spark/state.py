"""The state of one fake node, and where it is kept between two programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DRIVER = "580.173.02"
KERNEL = "6.17.0-1032-nvidia"
# Names as Ubuntu's archive builds them; the meta packages are the ones that move a kernel or a
# driver.
FREEZE_PACKAGES = {
    "linux-nvidia-hwe-24.04": "6.17.0-1032.32",
    "linux-image-nvidia-hwe-24.04": "6.17.0-1032.32",
    "linux-headers-nvidia-hwe-24.04": "6.17.0-1032.32",
    "linux-modules-nvidia-580-open-nvidia-hwe-24.04": "6.17.0-1032.32",
    "nvidia-driver-580-open": "580.173.02-0ubuntu0.24.04.1",
    "nvidia-modprobe": "580.173.02-1ubuntu1",
}
UPDATERS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades.service",
    "fwupd-refresh.timer",
    "nvidia-spark-run-apt-upgrade-once.service",
)


@dataclass
class Rail:
    """One PCIe function of a cage."""

    interface: str
    hca: str
    pci: str
    mac: str
    address: str
    port_name: str = "p0"
    mtu: int = 9000
    carrier: bool = True
    speed: int = 200_000  # Mb/s
    hca_state: str = "PORT_ACTIVE"
    active_mtu: int = 4096
    gid_index: int = 3
    has_gid: bool = True
    configured: bool = True
    mapped: bool = True
    gbps: float = 98.0
    jumbo: bool = True
    ber: str = "15E-255"
    peer_mac: str = ""
    more_addresses: list[str] = field(default_factory=list)


@dataclass
class State:
    """Everything a fake program may be asked about, in a healthy Spark's shape."""

    rank: int
    rails: list[Rail]
    driver: str = DRIVER
    smi: str = DRIVER
    smi_error: str = ""
    gpus: int = 1
    gpu_name: str = "NVIDIA GB10"
    memory: str = "[N/A]"
    clock_idle: int = 208
    clock_burn: int = 2400  # MHz under load with no cap: what the power budget leaves
    clock_ignored: bool = False
    kernel: str = KERNEL
    boot_kernels: list[str] = field(default_factory=lambda: [KERNEL])
    module_kernels: list[str] = field(default_factory=lambda: [KERNEL])
    cmdline: str = "root=/dev/nvme0n1p2 ro quiet"
    packages: dict[str, str] = field(default_factory=lambda: dict(FREEZE_PACKAGES))
    candidates: dict[str, str] = field(default_factory=dict)
    not_held: list[str] = field(default_factory=list)
    torn: int = 0
    units: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    bios: str = "5.36_0ACUM027"
    firmware: str = "28.45.4028 (NVD0000000087)"
    cx7: bool = True
    iproute_old: bool = False
    dmesg: list[str] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    routes: list[dict[str, Any]] = field(default_factory=list)
    wifi_up: bool = False


def healthy(rank: int) -> State:
    """Return a healthy node: one cable, its two functions as two rails."""
    rails = [
        Rail(
            "enp1s0f0np0",
            "rocep1s0f0",
            "0000:01:00.0",
            f"4c:bb:47:00:0{rank}:01",
            f"10.77.1.1{rank + 1}/24",
        ),
        Rail(
            "enP2p1s0f0np0",
            "roceP2p1s0f0",
            "0002:01:00.0",
            f"4c:bb:47:00:0{rank}:02",
            f"10.77.2.1{rank + 1}/24",
        ),
    ]
    for rail in rails:
        rail.peer_mac = rail.mac[:13] + str(1 - rank) + rail.mac[14:]
    units = dict.fromkeys(UPDATERS, ("masked", "inactive", "masked"))
    units["twinspark-clock-cap.service"] = ("loaded", "active", "enabled")
    units["earlyoom.service"] = ("not-found", "inactive", "")
    return State(rank=rank, rails=rails, units=units)


def folder() -> Path:
    """Return the folder that holds this node's switches and what the programs were told."""
    return Path(os.environ.get("TWINSPARK_FAKE_STATE", "/run/twinspark-fakes"))


def read(name: str) -> dict[str, Any]:
    """Read one JSON file of the state folder; absent is empty."""
    try:
        loaded: dict[str, Any] = json.loads((folder() / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return loaded


def write(name: str, value: dict[str, Any]) -> None:
    """Write one JSON file of the state folder, whole or not at all."""
    folder().mkdir(parents=True, exist_ok=True)
    part = folder() / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
    part.replace(folder() / name)


def rank() -> int:
    """Return this node's rank: switched, or told by the host name (spark1 is rank 0)."""
    switched = read("switches.json").get("rank")
    if switched is not None:
        return int(switched)
    return 1 if platform.node().split(".")[0].endswith("2") else 0
