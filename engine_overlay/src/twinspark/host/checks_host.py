"""Memory, packages, toolchain and what the engine's environment must carry on GB10."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from twinspark.host import parse
from twinspark.host.check import Check, Finding
from twinspark.host.node import NotAskedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinspark.host.node import Node

KIB_PER_GIB = 1024 * 1024
MIN_FREE_CEILING_KIB = (
    1024 * 1024
)  # 4 GiB has been seen to lower the engine's free memory by 6.2 GiB
DAEMON_CEILING_GIB = 1.0
ENGINE_NAMES = ("vllm", "VLLM::Worker")


def meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo to name -> KiB.

    Raises:
        ValueError: It does not say how much is free.
    """
    found = {key: int(value) for key, value in re.findall(r"(?m)^(\w+):\s+(\d+)", text)}
    if "MemFree" not in found:
        raise ValueError("no MemFree in /proc/meminfo")
    return found


def memory_free(node: Node) -> Finding:
    """Enough memory is free, not only reclaimable; judged while no engine runs."""
    wanted = node.expect.memory_free_gib
    if wanted is None or nccl_libraries(node):
        raise NotAskedError("an engine runs" if wanted else "no free memory is wanted")
    free = node.read("/proc/meminfo", meminfo)
    have, cached = free["MemFree"] / KIB_PER_GIB, free.get("Cached", 0) / KIB_PER_GIB
    said = f"{have:.1f} GiB free, {cached:.1f} GiB page cache"
    return Finding(
        have >= wanted, f"{wanted:g} GiB free", said, "the page cache counts as used on GB10"
    )


def swappiness(node: Node) -> Finding:
    """The kernel swaps as chosen."""
    wanted = node.expect.swappiness
    if wanted is None:
        raise NotAskedError("no swappiness is wanted")
    found = parse.number(node.file("/proc/sys/vm/swappiness"))
    return Finding(found == wanted, f"vm.swappiness {wanted}", str(found))


def min_free(node: Node) -> Finding:
    """The kernel's reserve is not set so high that the engine's check sees less."""
    found = node.read("/proc/sys/vm/min_free_kbytes", int)
    return Finding(
        found <= MIN_FREE_CEILING_KIB, f"at most {MIN_FREE_CEILING_KIB} KiB", f"{found} KiB"
    )


def memlock(node: Node) -> Finding:
    """The engine's unit may lock memory without limit, as RDMA registration needs."""
    found = node.matching("/etc/systemd/system/vllm-*.service")
    if not found:
        raise NotAskedError("no unit is deployed")
    limits = [
        line
        for text in found.values()
        for line in text.splitlines()
        if line.startswith("LimitMEMLOCK=")
    ]
    return Finding(
        limits == ["LimitMEMLOCK=infinity"], "LimitMEMLOCK=infinity", ", ".join(limits) or "unset"
    )


def earlyoom_spares(node: Node) -> Finding:
    """Earlyoom, where it runs, does not choose the engine."""
    unit = node.units.get("earlyoom.service")
    if unit is None or unit.active != "active":
        return Finding(ok=True, expected="the engine is avoided", actual="earlyoom does not run")
    texts = [
        node.files.get(path, "")
        for path in ("/etc/default/earlyoom", "/etc/twinspark/earlyoom.env")
    ]
    arguments = " ".join(texts).strip()
    avoid = re.findall(r"--avoid[ =]+'?([^\s']+)'?", arguments)
    spared = bool(avoid) and all(re.search(avoid[-1], name) for name in ENGINE_NAMES)
    return Finding(
        spared, f"--avoid matches {' and '.join(ENGINE_NAMES)}", arguments or "no --avoid"
    )


def host_daemons(node: Node) -> Finding:
    """No host daemon has grown into the engine's reserve."""
    large = []
    for text in node.matching("/proc/*/status").values():
        name = re.search(r"(?m)^Name:\s+(\S+)", text)
        size = re.search(r"(?m)^VmRSS:\s+(\d+)", text)
        if name and size and int(size[1]) > DAEMON_CEILING_GIB * KIB_PER_GIB:
            large.append(f"{name[1]} {int(size[1]) / KIB_PER_GIB:.1f} GiB")
    return Finding(
        not large, f"daemons below {DAEMON_CEILING_GIB:g} GiB", ", ".join(large) or "small"
    )


def python_headers(node: Node) -> Finding:
    """Triton compiles its launcher against Python.h."""
    found = sorted(node.matching("/usr/include/python3*/Python.h"))
    return Finding(bool(found), "Python.h", ", ".join(found) or "none")


def ninja(node: Node) -> Finding:
    """FlashInfer builds with ninja."""
    found = "/usr/bin/ninja" in node.files
    return Finding(found, "/usr/bin/ninja", "there" if found else "absent")


def ssh_keys_unique(nodes: Sequence[Node]) -> Finding:
    """No SSH host key is on both nodes."""
    keys = [
        {text.split()[1] for text in node.matching("/etc/ssh/*.pub").values() if " " in text}
        for node in nodes
    ]
    if not all(keys):
        raise NotAskedError("no SSH host key was read")
    shared = set.intersection(*keys)
    return Finding(not shared, "own SSH host keys", f"{len(shared)} shared" if shared else "unique")


def kernel_memory_errors(node: Node) -> Finding:
    """The driver did not run out of memory descriptors."""
    count = len(re.findall(r"_memdescAlloc|NV_ERR_NO_MEMORY", node.text("dmesg")))
    return Finding(count == 0, "no _memdescAlloc error", f"{count} in the kernel's log")


def toolkit_present(node: Node) -> Finding:
    """The toolkit's compilers are in its own prefix."""
    if not node.expect.cuda:
        raise NotAskedError("no toolkit is wanted")
    home = node.expect.cuda_home
    absent = [name for name in ("nvcc", "ptxas") if f"{home}/bin/{name}" not in node.files]
    return Finding(
        not absent, f"nvcc and ptxas in {home}/bin", f"absent: {', '.join(absent) or 'none'}"
    )


def toolkit_compiles(node: Node) -> Finding:
    """The toolkit has made machine code, not PTX, for sm_121a on this node."""

    def verdict(text: str) -> Finding:
        made = json.loads(text)
        right = made["target"] == "sm_121a" and made.get("sass") is True and not made.get("ptx")
        right = right and made.get("links") is True
        return Finding(
            right, "SASS for sm_121a, no PTX, libraries link", json.dumps(made, sort_keys=True)
        )

    path = next(iter(node.matching(f"/opt/*/cuda/{node.expect.cuda}/probe.json")), "")
    return node.read(
        path or f"the record of a compilation with {node.expect.cuda or 'a toolkit'}", verdict
    )


def system_cuda(node: Node) -> Finding:
    """The system's own default toolkit was not moved."""
    found = node.file("/usr/local/cuda")
    wanted = node.expect.cuda
    return Finding(not wanted or wanted not in found, f"/usr/local/cuda not {wanted}", found)


def setting(node: Node, key: str, good: str, expected: str, *, needs: bool = True) -> Finding:
    """Judge one key of the engine's environment against a pattern."""
    found = node.engine_environment.get(key)
    ok = not needs if found is None else re.fullmatch(good, found) is not None
    return Finding(ok, expected, f"{key}={found}" if found is not None else f"{key} is not set")


def ptxas_path(node: Node) -> Finding:
    """Triton assembles with the ptxas that its release was tested with, and our kernels chosen by.

    For this chip Triton 3.7.1 knows this variable alone (triton/backends/nvidia/compiler.py:34).
    """
    name = "TRITON_PTXAS_BLACKWELL_PATH"
    return setting(node, name, r"", f"{name} is not set", needs=False)


def unit_path(node: Node) -> Finding:
    """Compilers are on the unit's PATH."""
    home = re.escape(node.expect.cuda_home)
    return setting(
        node, "PATH", rf"(.*:)?{home}/bin(:.*)?", f"{node.expect.cuda_home}/bin on the unit's PATH"
    )


def arch_list(node: Node) -> Finding:
    """Kernels are built as machine code for this chip."""
    return setting(node, "TORCH_CUDA_ARCH_LIST", r"12\.1a", "TORCH_CUDA_ARCH_LIST=12.1a")


def startup_plan_off(node: Node) -> Finding:
    """The start-up plan, which asks NVML for memory, is off, as it is by 0.27.1's default."""
    key = "VLLM_ENABLE_STARTUP_PLAN"
    return setting(node, key, "0", f"{key} is 0 or not set", needs=False)


def nccl_nvls(node: Node) -> Finding:
    """NVLS, which hangs while loading experts, is off."""
    return setting(node, "NCCL_NVLS_ENABLE", "0", "NCCL_NVLS_ENABLE=0")


def gloo_interface(node: Node) -> Finding:
    """Gloo is told its interface."""
    return setting(node, "GLOO_SOCKET_IFNAME", r"\w+", "GLOO_SOCKET_IFNAME is set")


def hub_offline(node: Node) -> Finding:
    """The engine does not ask the model hub."""
    return setting(node, "HF_HUB_OFFLINE", "1|[Tt]rue", "HF_HUB_OFFLINE=1")


def host_ip_distinct(nodes: Sequence[Node]) -> Finding:
    """Each rank has its own address."""
    found = [node.engine_environment.get("VLLM_HOST_IP", "") for node in nodes]
    said = ", ".join(
        f"{node.name} {value or 'unset'}" for node, value in zip(nodes, found, strict=True)
    )
    return Finding(len(set(found)) == len(found), "VLLM_HOST_IP differs", said)


def nccl_libraries(node: Node) -> set[str]:
    """Return the NCCL libraries that running processes have mapped."""
    texts = node.matching("/proc/*/maps").values()
    return {line.split()[-1] for text in texts for line in text.splitlines() if "libnccl" in line}


def nccl_version(node: Node, library: str) -> str:
    """Return the version of a mapped NCCL: of its wheel, or of its own name; "" if neither says.

    The wheel's library is `nvidia/nccl/lib/libnccl.so.2`: only the folder beside it, named after
    the wheel, says which 2.x that is.
    """
    site, inside, _ = library.partition("/nvidia/nccl/lib/")
    wheels = node.matching(f"{site}/nvidia_nccl_cu*-*.dist-info/METADATA") if inside else {}
    names = [path.removeprefix(site) for path in wheels] + [library.rsplit("/", 1)[-1]]
    found = [match[1] for name in names if (match := re.search(r"(\d+\.\d+\.\d+)", name))]
    return found[0] if found else ""


def nccl_mapped(node: Node) -> Finding:
    """The library that the running engine has mapped is new enough."""
    found = {path: nccl_version(node, path) for path in sorted(nccl_libraries(node))}
    if not found:
        raise NotAskedError("no running process has NCCL mapped")
    floor = parse.sort_key(node.expect.nccl_at_least)
    old = [path for path, version in found.items() if parse.sort_key(version or "0") < floor]
    said = ", ".join(f"{version or 'unknown'} ({path})" for path, version in found.items())
    return Finding(not old, f"NCCL >= {node.expect.nccl_at_least}", said)


CHECKS = (
    Check("memory_free", "host", 16, "the engine's memory is free", memory_free),
    Check("swappiness", "host", 54, "the kernel swaps as chosen", swappiness, warns=True),
    Check("min_free", "host", 53, "the kernel's reserve is small", min_free, warns=True),
    Check("memlock", "host", 55, "the unit may lock memory", memlock),
    Check("earlyoom_spares", "host", 40, "earlyoom avoids the engine", earlyoom_spares),
    Check("host_daemons", "host", 41, "no daemon has grown", host_daemons, warns=True),
    Check("python_headers", "host", 18, "Python.h is there", python_headers),
    Check("ninja", "host", 19, "ninja is there", ninja),
    Check("ssh_keys_unique", "host", 47, "SSH host keys are unique", pair=ssh_keys_unique),
    Check(
        "kernel_memory_errors",
        "log",
        15,
        "the driver found memory",
        kernel_memory_errors,
        warns=True,
    ),
    Check("toolkit_present", "toolchain", 57, "the toolkit is in its prefix", toolkit_present),
    Check(
        "toolkit_compiles",
        "toolchain",
        17,
        "the toolkit makes sm_121a code",
        toolkit_compiles,
        after=("toolkit_present",),
    ),
    Check("system_cuda", "toolchain", 57, "the system's CUDA was not moved", system_cuda),
    Check("ptxas_path", "engine", 17, "Triton uses its own ptxas for Blackwell", ptxas_path),
    Check("unit_path", "engine", 19, "compilers are on the unit's PATH", unit_path),
    Check("arch_list", "engine", 20, "kernels become machine code", arch_list),
    Check("startup_plan_off", "engine", 23, "the start-up plan is off", startup_plan_off),
    Check("nccl_nvls", "engine", 9, "NVLS is off", nccl_nvls),
    Check("gloo_interface", "engine", 30, "gloo is told its interface", gloo_interface),
    Check("hub_offline", "engine", 38, "the engine stays offline", hub_offline),
    Check("host_ip_distinct", "engine", 28, "each rank has its own address", pair=host_ip_distinct),
    Check("nccl_mapped", "engine", 7, "the mapped NCCL is new enough", nccl_mapped),
)
