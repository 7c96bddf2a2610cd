"""Driver, kernel, packages, firmware: the set that must stay as it was deployed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twinspark.host import parse
from twinspark.host.check import Check, Finding
from twinspark.host.clock import FLOOR_MHZ, SLACK_MHZ, Reading
from twinspark.host.node import NoAnswerError, NotAskedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinspark.host.node import Node

CUDA_NOTE = (
    'nvidia-smi\'s "CUDA Version" is the newest CUDA that the driver itself knows (13.0 for branch '
    "580), not the toolkit that is installed: it says 13.0 beside toolkit 13.3, and that is right"
)


def modprobe_matches(node: Node) -> Finding:
    """Nvidia-modprobe comes from the driver's branch."""
    found = next((one.version for one in node.packages if one.name == "nvidia-modprobe"), "")
    if not found or not node.expect.driver:
        raise NotAskedError("nvidia-modprobe is not installed from a package")
    branch = node.expect.driver.split(".")[0]
    return Finding(
        found.split(".")[0] == branch, f"nvidia-modprobe {branch}.*", f"nvidia-modprobe {found}"
    )


def ota_whole(node: Node) -> Finding:
    """The last OTA went through."""
    text = node.text("ota", failing=True)
    whole = node.succeeded("ota") and parse.number(text) == 0
    detail = "nothing is held or pinned on top of a half-applied OTA"
    return Finding(whole, "torn=0", text.strip()[:120], detail)


def driver_answers(node: Node) -> Finding:
    """Nvidia-smi sees a GPU."""
    text = node.text("smi", failing=True)
    seen = parse.gpus(text) if node.succeeded("smi") else ()
    return Finding(len(seen) > 0, "a GPU", seen[0].name if seen else text.strip()[:160])


def driver_whole(node: Node) -> Finding:
    """The user space belongs to the loaded kernel module."""
    found = node.parsed("smi_version", parse.versions)
    user, module = found["nvidia-smi"], found["driver"]
    return Finding(
        user == module, "user space = kernel module", f"user space {user}, module {module}"
    )


def driver_pinned(node: Node) -> Finding:
    """The driver is the pinned one."""
    found, wanted = node.driver, node.expect.driver
    return Finding(wanted in {"", found}, wanted or "any", found, CUDA_NOTE)


def driver_equal(nodes: Sequence[Node]) -> Finding:
    """Both nodes run one driver."""
    return equal({node.name: node.driver for node in nodes})


def kernel_pinned(node: Node) -> Finding:
    """The running kernel is one of the set."""
    found, wanted = node.text("uname").strip(), node.expect.kernels
    return Finding(not wanted or found in wanted, " or ".join(wanted) or "any", found)


def kho_off(node: Node) -> Finding:
    """A kernel with KHO runs with it switched off."""
    kernel = node.text("uname").strip()
    if kernel not in node.expect.kho_kernels:
        return Finding(
            ok=True,
            expected="kho=off where the kernel has KHO",
            actual=f"{kernel} does not need it",
        )
    line = node.file("/proc/cmdline").split()
    return Finding(
        "kho=off" in line,
        "kho=off on the kernel's command line",
        f"{kernel}, {' '.join(line)[-100:]}",
    )


def kernel_equal(nodes: Sequence[Node]) -> Finding:
    """Both nodes run one kernel."""
    return equal({node.name: node.text("uname").strip() for node in nodes})


def equal(found: dict[str, str]) -> Finding:
    """Compare one value a node.

    Raises:
        NoAnswerError: A node gave none.
    """
    if silent := [name for name, value in found.items() if not value]:
        raise NoAnswerError(f"{', '.join(silent)} did not say")
    same = len(set(found.values())) == 1
    return Finding(
        same, "equal on both nodes", ", ".join(f"{name} {value}" for name, value in found.items())
    )


def next_boot(node: Node) -> str:
    """Return the kernel that GRUB starts next: the one GRUB_DEFAULT names, else the newest.

    Raises:
        NotAskedError: There is no kernel in /boot, or GRUB_DEFAULT is `saved`.
    """
    names = [path.removeprefix("/boot/vmlinuz-") for path in node.matching("/boot/vmlinuz-*")]
    if not names:
        raise NotAskedError("there is no kernel in /boot")
    places = ["/etc/default/grub", *sorted(node.matching("/etc/default/grub.d/*.cfg"))]
    lines = [line for place in places for line in node.files.get(place, "").splitlines()]
    chosen = lines[-1].split("=", 1)[1].strip("\"'") if lines else "0"
    if chosen == "saved":
        raise NotAskedError("GRUB_DEFAULT=saved: the next kernel is known to grubenv only")
    named = re.search(r"\d+\.\d+\.\d+-\d+-[a-z]+", chosen)
    return named.group() if named else max(names, key=parse.sort_key)


def next_boot_module(node: Node) -> Finding:
    """The kernel that boots next has an nvidia module."""
    kernel = next_boot(node)
    has = [
        path for path in node.matching("/lib/modules/*/nvidia.ko*") if path.split("/")[3] == kernel
    ]
    return Finding(
        bool(has),
        f"nvidia.ko for {kernel}",
        has[0] if has else f"no nvidia.ko below /lib/modules/{kernel}",
    )


def next_boot_kernel(node: Node) -> Finding:
    """The kernel that boots next is the one that runs now."""
    kernel, running = next_boot(node), node.text("uname").strip()
    return Finding(kernel == running, f"{running} boots next", kernel)


def packages_held(node: Node) -> Finding:
    """Every package of the set is on hold."""
    loose = [one.name for one in node.packages if one.want != "hold"]
    return Finding(
        not loose,
        f"{len(node.packages)} packages on hold",
        f"not held: {', '.join(loose) or 'none'}",
    )


def candidates_pinned(node: Node) -> Finding:
    """Apt would not exchange a package of the set."""
    if not node.packages:
        raise NotAskedError("no package of the frozen set is installed")
    found = node.parsed("policy", parse.candidates)
    moved = [f"{name} {had} -> {next_}" for name, (had, next_) in found.items() if had != next_]
    return Finding(not moved, "candidate = installed", "; ".join(moved) or "candidate = installed")


def updaters_masked(node: Node) -> Finding:
    """What updates by itself is masked."""
    if not node.expect.updaters:
        raise NotAskedError("no updater is to be masked")
    units = node.units
    loose = [
        name for name in node.expect.updaters if name in units and units[name].load != "masked"
    ]
    return Finding(not loose, "masked", f"not masked: {', '.join(loose) or 'none'}")


def bios_equal(nodes: Sequence[Node]) -> Finding:
    """Both nodes have one BIOS."""
    return equal({node.name: node.text("bios").strip() for node in nodes})


def clock_unit(node: Node) -> Finding:
    """The clock cap is applied, and will be at boot."""
    if not node.expect.clock_unit:
        raise NotAskedError("no clock cap is wanted")
    unit = node.units.get(node.expect.clock_unit)
    state = f"{unit.enabled or 'absent'}, {unit.active}" if unit else "absent"
    return Finding(state == "enabled, active", "enabled, active", state)


def reading_of(node: Node) -> Reading:
    """Return the clock under load that was read since this boot."""
    if not node.expect.clock_cap_mhz:
        raise NotAskedError("no clock cap is wanted")
    return node.read("/run/twinspark-clock.json", Reading.from_json)


def clock_reached(node: Node) -> Finding:
    """Under load the clock is that of a unit with its full power."""
    reading = reading_of(node)
    floor = min(FLOOR_MHZ, node.expect.clock_cap_mhz)
    return Finding(reading.median >= floor, f"at least {floor} MHz under load", reading.said)


def clock_capped(node: Node) -> Finding:
    """Under load the clock stays below the cap."""
    reading = reading_of(node)
    cap = node.expect.clock_cap_mhz
    return Finding(
        reading.highest <= cap + SLACK_MHZ, f"at most {cap} MHz under load", reading.said
    )


CHECKS = (
    Check(
        "modprobe_matches",
        "driver",
        3,
        "nvidia-modprobe is of the driver's branch",
        modprobe_matches,
    ),
    Check("ota_whole", "driver", 4, "the last OTA went through", ota_whole),
    Check("kernel_pinned", "driver", 62, "the running kernel is in the set", kernel_pinned),
    Check(
        "kho_off",
        "driver",
        1,
        "KHO is off where the kernel has it",
        kho_off,
        after=("kernel_pinned",),
    ),
    Check(
        "driver_answers",
        "driver",
        4,
        "nvidia-smi sees a GPU",
        driver_answers,
        after=("modprobe_matches", "ota_whole"),
    ),
    Check(
        "driver_whole",
        "driver",
        61,
        "user space and module are one driver",
        driver_whole,
        after=("driver_answers",),
    ),
    Check(
        "driver_pinned",
        "driver",
        61,
        "the driver is the pinned one",
        driver_pinned,
        after=("driver_answers",),
    ),
    Check("next_boot_module", "driver", 2, "the next kernel has nvidia.ko", next_boot_module),
    Check(
        "next_boot_kernel",
        "driver",
        62,
        "the next kernel is the running one",
        next_boot_kernel,
        after=("next_boot_module",),
    ),
    Check(
        "driver_equal",
        "driver",
        61,
        "one driver on both nodes",
        pair=driver_equal,
        after=("driver_answers", "driver_pinned"),
    ),
    Check(
        "kernel_equal",
        "driver",
        62,
        "one kernel on both nodes",
        pair=kernel_equal,
        after=("kernel_pinned", "kho_off"),
    ),
    Check("bios_equal", "driver", 59, "one BIOS on both nodes", pair=bios_equal, warns=True),
    Check("packages_held", "freeze", 61, "the set is on hold", packages_held),
    Check("candidates_pinned", "freeze", 61, "apt would not exchange the set", candidates_pinned),
    Check("updaters_masked", "freeze", 5, "nothing updates by itself", updaters_masked),
    Check("clock_unit", "clock", 14, "the clock cap is applied at boot", clock_unit),
    Check("clock_reached", "clock", 45, "the clock under load is high enough", clock_reached),
    Check(
        "clock_capped", "clock", 56, "the cap holds under load", clock_capped, after=("clock_unit",)
    ),
)
