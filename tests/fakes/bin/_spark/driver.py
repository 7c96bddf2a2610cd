"""nvidia-smi, the packages, the kernel, the firmware."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING

from . import state as store

if TYPE_CHECKING:
    from .state import State

Answer = tuple[int, str, str]


def nvidia_smi(state: State, argv: list[str]) -> Answer:  # noqa: PLR0911 (one answer a question)
    """Query, version, clock lock. GB10: memory and power limit are not available."""
    if state.smi_error:
        return 9 if "NVML" in state.smi_error else 6, state.smi_error + "\n", ""
    words = " ".join(argv)
    if "-lgc" in argv or "--lock-gpu-clocks" in words:
        value = argv[argv.index("-lgc") + 1] if "-lgc" in argv else words.split("=", 1)[1]
        store.write("clock.json", {"lock": value})
        least, most = value.split(",")
        said = f'GPU clocks set to "(gpuClkMin {least}, gpuClkMax {most})" for GPU 0000000F:01:00.0'
        return 0, said + "\n", ""
    if "-rgc" in argv or "--reset-gpu-clocks" in argv:
        store.write("clock.json", {})
        return 0, "All done.\n", ""
    if "--version" in argv:
        return (
            0,
            (
                f"NVIDIA-SMI version  : {state.smi}\nNVML version        : "
                f"{state.smi.rsplit('.', 1)[0]}\n"
                f"DRIVER version      : {state.driver}\nCUDA Version        : 13.0\n"
            ),
            "",
        )
    asked = next((word.split("=", 1)[1] for word in argv if word.startswith("--query-gpu=")), "")
    if asked:
        return (
            0,
            (", ".join(query(state, name) for name in asked.split(",")) + "\n") * state.gpus,
            "",
        )
    if "-pl" in argv:
        return (
            3,
            "Changing power management limit is not supported for GPU: 0000000F:01:00.0.\n",
            "",
        )
    return 0, f"NVIDIA-SMI {state.smi}   Driver Version: {state.driver}   CUDA Version: 13.0\n", ""


def query(state: State, name: str) -> str:
    """Return one column of --query-gpu."""
    burning = bool(store.read("burn.json").get("on"))
    clock = clock_under_load(state) if burning else state.clock_idle
    return {
        "name": state.gpu_name,
        "driver_version": state.driver,
        "vbios_version": "9A.0B.21.00.00",
        "compute_cap": "12.1",
        "pstate": "P0" if burning else "P8",
        "clocks.sm": f"{clock} MHz",
        "clocks.max.sm": "3003 MHz",
        "power.draw": "61.20 W" if burning else "4.21 W",
        "memory.total": state.memory,
        "power.limit": "[N/A]",
    }.get(name, "[N/A]")


def clock_under_load(state: State) -> int:
    """Return the SM clock in MHz that a burn shows: the cap holds only below what power allows."""
    lock = str(store.read("clock.json").get("lock", ""))
    if not lock or state.clock_ignored:
        return state.clock_burn
    return min(int(lock.rsplit(",", maxsplit=1)[-1]), state.clock_burn)


def _matching(state: State, patterns: list[str]) -> list[str]:
    return [
        name
        for name in state.packages
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]


def _held(state: State, name: str) -> bool:
    if name in state.not_held:
        return False
    return (
        str(
            store.read("selections.json").get(
                name, "hold" if store.read("switches.json").get("held") else "install"
            )
        )
        == "hold"
    )


def _selection(state: State, name: str) -> str:
    return "hold" if _held(state, name) else "install"


def dpkg_query(state: State, argv: list[str]) -> Answer | None:
    """Packages of the freeze set; None: not ours, ask the real one."""
    patterns = [word for word in argv if not word.startswith("-")]
    names = _matching(state, patterns)
    if not names or not any(word.startswith(("-W", "-f")) for word in argv):
        return None
    lines = [
        f"{name}\t{state.packages[name]}\t{_selection(state, name)}\tinstalled\n" for name in names
    ]
    return 0, "".join(lines), ""


def dpkg(state: State, argv: list[str]) -> Answer | None:
    """Selections of the freeze set; None: not ours."""
    if "--set-selections" in argv:
        words = sys.stdin.read().split()
        store.write(
            "selections.json",
            {**store.read("selections.json"), **dict(zip(words[::2], words[1::2], strict=True))},
        )
        return 0, "", ""
    if "--get-selections" in argv:
        names = _matching(state, argv[argv.index("--get-selections") + 1 :])
        if names:
            return (
                0,
                "".join(
                    f"{name}\t\t\t{'hold' if _held(state, name) else 'install'}\n" for name in names
                ),
                "",
            )
    return None


def apt_cache(state: State, argv: list[str]) -> Answer | None:
    """`apt-cache policy NAMES`; None: not ours."""
    names = [name for name in argv[1:] if name in state.packages] if argv[:1] == ["policy"] else []
    if not names:
        return None
    blocks = [
        f"{name}:\n  Installed: {state.packages[name]}\n  Candidate: "
        f"{state.candidates.get(name, state.packages[name])}\n"
        f"  Version table:\n *** {state.packages[name]} 1001\n        100 /var/lib/dpkg/status\n"
        for name in names
    ]
    return 0, "".join(blocks), ""


def ota_check(state: State, argv: list[str]) -> Answer:
    """`nvidia-spark-ota-check torn-score`."""
    if argv[:1] == ["torn-score"]:
        return (1 if state.torn else 0), f"torn={state.torn}\n", ""
    return 2, "", "usage: nvidia-spark-ota-check torn-score\n"


def dmidecode(state: State, argv: list[str]) -> Answer:
    """Two DMI strings."""
    asked = argv[argv.index("-s") + 1] if "-s" in argv else ""
    return (
        0,
        {"bios-version": state.bios, "system-product-name": "NVIDIA_DGX_Spark"}.get(asked, "")
        + "\n",
        "",
    )


def uname(state: State, argv: list[str]) -> Answer | None:
    """Only `uname -r`."""
    return (0, state.kernel + "\n", "") if argv == ["-r"] else None


def dmesg(state: State, argv: list[str]) -> Answer:
    """The kernel's log: quiet on a healthy node."""
    del argv
    return 0, "".join(f"[ 1234.5678] {line}\n" for line in state.dmesg), ""
