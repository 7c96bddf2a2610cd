"""One other value for every role, all tried in one run of site.yml in check mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.play import ROOT
from roles.role_table import load

if TYPE_CHECKING:
    from pathlib import Path

ENV: Final = ROOT / "env"
WHEEL: Final = "twinspark-{version}-py3-none-any.whl".format(
    version=load(ENV / "group_vars/all/pins.yml")["twinspark_version"]
)
UPDATER: Final = "twinspark-other-updater.timer"
# what check mode cannot show, as the role only runs programs, is played for real
PLAYED: Final = {"smoke_guard": {"smoke_guard_checks": ["identity", "health"]}}
# for real too, on nodes without an engine; a load and measured rails would take too long
HOST: Final[dict[str, Any]] = {
    "host_baseline_sysctl": {"vm.dirty_background_ratio": 5},
    "gpu_driver_updaters": ["apt-daily.timer", UPDATER],
    "clock_cap_maximum_mhz": 2100,
    "clock_cap_burn": [],
    "fabric_mtu": 8000,
    "fabric_gate": False,
}


def values(folder: Path) -> dict[str, Any]:
    """Variables, each with its role's name in front; files that they name are made in `folder`.

    Args:
        folder: An empty folder on the controller.
    """
    variant, lock = folder / "lab-cpu.env", folder / "other.lock"
    text = (ENV / "lab-cpu.env").read_text(encoding="utf-8")
    variant.write_text(text.replace("MAX_NUM_SEQS=16", "MAX_NUM_SEQS=8"))
    text = (ENV / "locks" / "lab-cpu.lock").read_text(encoding="utf-8")
    lock.write_text(f"{text}# the same packages, another release\n")
    return {
        "variant_file": str(variant),
        **HOST,
        "cuda_toolkit_source": "wheels",
        "cuda_toolkit_home": "/usr/local/cuda-other",
        "fabric_apply_while_serving": True,
        "checkpoint_root": "/opt/twinspark-other",
        "engine_venv_lock": str(lock),
        "engine_overlay_built": str(folder / "dist" / WHEEL),
        "serve_restart_sec": 7,
        "battery_timer_enabled": True,
        "battery_timer_interval_sec": 3600,
    }


def roles_of(given: dict[str, Any]) -> set[str]:
    """Roles that one of the variables belongs to."""
    roles = [path.name for path in (ROOT / "roles").iterdir() if path.is_dir()]
    return {role for role in roles if any(name.startswith(f"{role}_") for name in given)}
