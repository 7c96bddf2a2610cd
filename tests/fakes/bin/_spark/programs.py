"""Which program answers what, and the files a healthy Spark shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import driver, fabric
from . import state as store
from .faults import FAULTS
from .files import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .driver import Answer
    from .state import State

PROGRAMS: dict[str, Callable[[State, list[str]], Answer | None]] = {
    "nvidia-smi": driver.nvidia_smi,
    "dpkg-query": driver.dpkg_query,
    "dpkg": driver.dpkg,
    "apt-cache": driver.apt_cache,
    "nvidia-spark-ota-check": driver.ota_check,
    "dmidecode": driver.dmidecode,
    "uname": driver.uname,
    "dmesg": driver.dmesg,
    "ibv_devinfo": fabric.ibv_devinfo,
    "ibdev2netdev": fabric.ibdev2netdev,
    "ethtool": fabric.ethtool,
    "lspci": fabric.lspci,
    "mlxlink": fabric.mlxlink,
    "ib_write_bw": fabric.ib_write_bw,
    "ip": fabric.ip,
    "ping": fabric.ping,
    "systemctl": fabric.systemctl,
}


def current() -> State:
    """Return this node's state with its switched faults.

    Raises:
        KeyError: A switch names no fault.
    """
    state = store.healthy(store.rank())
    for name in store.read("switches.json").get("faults", []):
        FAULTS[name].break_(state)
    return state


def plant(wanted: dict[str, str], root: Path, *, keep: bool = False) -> None:
    """Write files below `root`; unless `keep`, take away there what is not wanted."""
    for path in sorted(root.rglob("*"), reverse=True) if not keep else []:
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif "/" + str(path.relative_to(root)) not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.unlink(missing_ok=True)
            path.symlink_to(text[3:])
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def spark_files() -> dict[str, str]:
    """Return what the lab's nodes lack: only a Spark has it."""
    return tree(current())
