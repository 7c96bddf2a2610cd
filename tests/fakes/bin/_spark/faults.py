"""The fault switches: what breaks, its row of docs/symptoms.md, the one check that must fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults_fabric import FABRIC
from .faults_host import HOST
from .faults_kit import Fault

if TYPE_CHECKING:
    from .state import State

NEW = "7.0.0-1019-nvidia"


def _kho(state: State) -> None:
    state.kernel, state.boot_kernels, state.module_kernels = NEW, [NEW], [NEW]


def _other_kernel(state: State) -> None:
    state.kernel = "6.11.0-1016-nvidia"
    state.boot_kernels, state.module_kernels = [state.kernel], [state.kernel]


def _next_boot_no_module(state: State) -> None:
    state.boot_kernels.append("6.17.0-1033-nvidia")


def _next_boot_moved(state: State) -> None:
    state.boot_kernels.append("6.17.0-1033-nvidia")
    state.module_kernels.append("6.17.0-1033-nvidia")


def _drift(state: State) -> None:
    state.driver = state.smi = "580.178.04"


def _modprobe(state: State) -> None:
    state.packages["nvidia-modprobe"] = "610.43.02-1ubuntu1"
    state.smi_error = "Failed to initialize NVML: Driver/library version mismatch"


def _no_devices(state: State) -> None:
    state.smi_error = "No devices were found"


def _torn(state: State) -> None:
    state.torn = 1


def _torn_and_gone(state: State) -> None:
    state.torn = 1
    state.smi_error = "No devices were found"


def _mismatch(state: State) -> None:
    state.smi = "580.178.04"


def _hold_lost(state: State) -> None:
    state.not_held = ["nvidia-modprobe"]


def _candidate(state: State) -> None:
    state.candidates["nvidia-driver-580-open"] = "580.178.04-0ubuntu0.24.04.1"


def _updater(state: State) -> None:
    state.units["nvidia-spark-run-apt-upgrade-once.service"] = ("loaded", "inactive", "enabled")


def _apt_daily(state: State) -> None:
    state.units["apt-daily-upgrade.timer"] = ("loaded", "active", "enabled")


def _bios(state: State) -> None:
    state.bios = "5.36_0ACUM018"


def _clock_unit(state: State) -> None:
    state.units["twinspark-clock-cap.service"] = ("loaded", "inactive", "disabled")


def _clock_ignored(state: State) -> None:
    state.clock_ignored = True


def _low_power(state: State) -> None:
    state.clock_burn = 850


DRIVER = {
    "kernel_kho": Fault("kernel 7.0.0-1019 without kho=off", 1, "kho_off", _kho),
    "next_boot_no_module": Fault(
        "the newest kernel has no nvidia.ko", 2, "next_boot_module", _next_boot_no_module
    ),
    "modprobe_610": Fault(
        "nvidia-modprobe 610 beside driver 580", 3, "modprobe_matches", _modprobe
    ),
    "no_devices": Fault("nvidia-smi: No devices were found", 4, "driver_answers", _no_devices),
    "ota_torn": Fault("an OTA stopped half-way", 4, "ota_whole", _torn),
    "ota_torn_gpu_gone": Fault("a torn OTA took the GPU away", 4, "ota_whole", _torn_and_gone),
    "updater_unmasked": Fault(
        "NVIDIA's one-shot upgrade service is back", 5, "updaters_masked", _updater
    ),
    "apt_daily_unmasked": Fault(
        "apt-daily-upgrade.timer runs again", 5, "updaters_masked", _apt_daily
    ),
    "clock_unit_off": Fault("the clock cap is not applied at boot", 14, "clock_unit", _clock_unit),
    "low_power": Fault(
        "stuck at 850 MHz under load (USB-PD fallback)", 45, "clock_reached", _low_power
    ),
    "clock_ignored": Fault("-lgc says yes and does nothing", 56, "clock_capped", _clock_ignored),
    "bios_differs": Fault("one node has an older BIOS", 59, "bios_equal", _bios),
    "driver_drifted": Fault("driver 580.178.04 on one node", 61, "driver_pinned", _drift),
    "driver_mismatch": Fault(
        "user space newer than the loaded module", 61, "driver_whole", _mismatch
    ),
    "hold_lost": Fault("nvidia-modprobe is no longer held", 61, "packages_held", _hold_lost),
    "candidate_moved": Fault(
        "apt would install another driver", 61, "candidates_pinned", _candidate
    ),
    "kernel_other": Fault("a kernel that is not in the set", 62, "kernel_pinned", _other_kernel),
    "next_boot_moved": Fault("another kernel boots next", 62, "next_boot_kernel", _next_boot_moved),
}

FAULTS: dict[str, Fault] = {**DRIVER, **FABRIC, **HOST}
