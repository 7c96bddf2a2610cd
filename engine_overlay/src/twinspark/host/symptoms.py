"""What owners of such pairs have met: symptom, cause, fix, source. docs/symptoms.md is printed from here.

The field's reports are quoted as theirs; none was reproduced on a Spark by this project. Rows 1-48 are
owners' problems, rows from 49 on are facts about the hardware that a check watches.
"""

from __future__ import annotations

from typing import NamedTuple

from twinspark.host.symptoms_engine import ENGINE_ROWS


class Symptom(NamedTuple):
    """One row."""

    symptom: str
    cause: str
    fix: str
    source: str
    elsewhere: str = ""  # who looks, where it is no check of this package


HOST_ROWS: dict[int, tuple[str, ...]] = {
    1: (
        "ibv_reg_mr_iova2: Cannot allocate memory; the worker dies right after NCCL's start; CmaFree above CmaTotal",
        "kernel 7.0.0-1019 reserves 9.3 GiB for kexec handover (KHO) as CMA memory",
        "boot with kho=off (package nvidia-spark-grub-kho), or stay on kernel 6.17.0-1032-nvidia",
        "NVIDIA forum 383254 and 383023; NV-Kernels PR 590, 591",
    ),
    2: (
        "after an upgrade and a reboot there is no /dev/nvidia*, on one node only",
        "kernel and driver modules are phased by machine id, and Sparks have no DKMS",
        "install the linux-modules-nvidia package of that kernel before rebooting; hold the set on both nodes",
        "NVIDIA forum 383312 and 383450",
    ),
    3: (
        "Failed to initialize NVML after an upgrade",
        "nvidia-modprobe of branch 610 beside driver 580: the system's pin file does not name that package",
        "install nvidia-modprobe of the driver's branch and hold it with the rest",
        "epappas/gx10-cluster, roles/base",
    ),
    4: (
        "nvidia-smi: No devices were found",
        "an OTA that was applied in part: the driver does not match the rest of its set (owners disagree: eight nodes "
        "with the same driver are well)",
        "apt full-upgrade and fwupdmgr update, reboot, until nvidia-spark-ota-check torn-score says 0; hold only then",
        "tonyd2wild's V4.1 kit, issue 1",
    ),
    5: (
        "a node reboots or wedges itself while serving",
        "nvidia-spark-run-apt-upgrade-once, apt-daily or fwupd updates it",
        "mask the units, hold the packages (role gpu_driver does both)",
        "microscaler/cylon-local-infra, roles/spark_kernel",
    ),
    6: (
        "both nodes freeze within a day; ping answers, sshd does not; _memdescAlloc errors",
        "driver 580.178.04 with kernel 7.0 (a correlation, one report)",
        "stay on 580.173.02 with kernel 6.17",
        "amasu, DGX OS 7.6.0 report",
    ),
    7: (
        "all ranks at 100% GPU and 18-20 W, silent",
        "NCCL 2.28.9 leaks proxy slots on aarch64",
        "NCCL 2.29.3 or newer in the engine's environment; see which library the process has mapped",
        "NVIDIA/nccl 2353; vllm 40969; sglang 33289",
    ),
    8: (
        "the same picture with NCCL 2.30.7",
        "ncclIbIsend reads nreqs before idx: a fence is missing on aarch64",
        "open: PR 2393 is not in a release. Restart the pair; a build with the fence is known to help",
        "NVIDIA/nccl 1983, PR 2393",
    ),
    9: (
        "the load of the experts hangs",
        "NVLS in NCCL 2.30.4",
        "NCCL_NVLS_ENABLE=0",
        "NVIDIA/nccl 2167",
    ),
    10: (
        "a 200G link delivers 13 Gb/s",
        "the ConnectX-7 came up with throttled slot power (the kernel's 27 W line is no sign: healthy links print it)",
        "reboot with the cables seated; if that does not help, pull the power for a minute; then measure again",
        "dgx-spark-playbooks PR 108; NVIDIA forum 363461; the first seed",
    ),
    11: (
        "collectives at a fraction on one node, every counter clean",
        "unknown; seen after long uptime",
        "reboot that node; judge by a 64 MiB NCCL collective, not by ping or TCP",
        "colonel-otto/3x-dgx-spark-mesh, FABRIC-FIX-PARITY",
    ),
    12: (
        "the engine dies minutes after someone opened NVIDIA Sync",
        "Sync runs `netplan apply`, which bounces every connection; the GID table changes under NCCL",
        "remove this pair from Sync; take rails out of other netplan files; restart the pair",
        "colonel-otto/3x-dgx-spark-mesh, troubleshooting",
    ),
    13: (
        "fatal AER, mlx5_pci_slot_reset, the host is gone",
        "PCIe error recovery of the ConnectX-7",
        "reboot; a hardware watchdog shortens the wait. Open",
        "MiaAI-Lab issue 146",
    ),
    14: (
        "the unit powers off, and stays off, seconds into a prefill of 128k tokens; pstore is empty",
        "a power transient on a hot unit",
        "cap the clock: nvidia-smi -lgc 300,2200 at boot (role clock_cap); 2 of 2 power-offs became 0 of 6",
        "capetron/gb10-cluster-bench, power-offs-and-clock-lock; NVIDIA forum 373251, 377478",
    ),
    15: (
        "NV_ERR_NO_MEMORY 0x51 in _memdescAllocInternal, then a hang",
        "allocation churn on unified memory (autotune, indexer logits)",
        "autotune off, memory share at most 0.80, VLLM_SPARSE_INDEXER_MAX_LOGITS_MB 64-256; reboot",
        "dgx-spark-playbooks 97; open-gpu-kernel-modules 1358; vllm 55569",
    ),
    16: (
        "the load ends without memory at 73-97%, though 116 GiB are `available`",
        "page cache counts as used for the GPU",
        "drop the page cache before the start, never beside a running engine (memory admission does this)",
        "vllm 45179; colonel-otto/3x-dgx-spark-mesh",
    ),
    17: (
        "ptxas fatal: sm_121a is not defined",
        "Triton's own ptxas is older than the chip",
        "TRITON_PTXAS_PATH to the toolkit's ptxas",
        "triton 8539, 10331",
    ),
    18: (
        "Python.h: No such file, at the first request",
        "Triton compiles a launcher and there are no headers",
        "install python3.12-dev (role host_baseline)",
        "vllm 27890; tabbyAPI 456",
    ),
    19: (
        "FlashInfer's or DeepGEMM's compilation fails or stalls in the unit only",
        "nvcc, cicc or ninja are not on the unit's PATH",
        "PATH and CUDA_HOME in the unit's environment; ninja installed",
        "vllm 49497",
    ),
    20: (
        "the provided PTX was compiled with an unsupported toolchain",
        "PTX of CUDA 13.2 or newer on a driver of branch 580",
        "build machine code for 12.1a only, no +PTX",
        "nvbandwidth 61; gpu-burn 145",
    ),
    29: (
        "a hang at the start though the fabric is fine",
        "ufw drops NCCL's bootstrap, whose port is chosen at run time",
        "ufw allow from the peer's rail addresses, without a port",
        "epappas/gx10-cluster, decisions",
    ),
    40: (
        "the engine is killed every few minutes",
        "earlyoom (or another guard) picks the largest process",
        "give it an --avoid list (role host_baseline does), or switch it off",
        "MiaAI-Lab README; tonyd2wild issue 31",
    ),
    41: (
        "host daemons eat the reserve: polkitd at 3.4 GiB",
        "a dashboard that logs in by ssh several times a second",
        "restart the daemon; one shared connection, or exporters on the node",
        "a GLM operations report",
    ),
    43: (
        "checks fail on a healthy fabric",
        "iproute2 6.1.0 leaves `dev` out of its JSON, or writes `from`",
        "nothing to do: both shapes are read",
        "NVIDIA/NemoClaw 8519, 8684, PR 8692",
    ),
    44: (
        "a unit powered off while 160 GB were hashed (one report)",
        "page cache and an idle GPU; unproven",
        "verify the weights before the engine is loaded, never beside it",
        "tonyd2wild PR 19",
    ),
    45: (
        "stuck at 30 W and 500-850 MHz",
        "USB-PD fell back to a lower power level",
        "pull the power of the unit for a minute; on DGX OS 7.6.0 also kho=off",
        "NVIDIA forum 355255, 383926",
    ),
    46: (
        "a kernel oops of the Wi-Fi driver wedges the network stack",
        "MT7925",
        "use the wired port; nmcli radio wifi off",
        "MiaAI-Lab PR 157; microscaler/cylon-local-infra, roles/spark_wifi",
    ),
    47: (
        "two units answer with the same SSH host key",
        "keys came with the factory image (CVE-2026-24218)",
        "on one unit: remove /etc/ssh/ssh_host_*, run ssh-keygen -A, restart ssh; then renew known_hosts",
        "NVIDIA forum 374930",
    ),
    49: (
        "bandwidth is a few per cent low, or large packets vanish",
        "the MTU was changed in the configuration and not on the link; the HCA then stays at 1024",
        "bring that one link up again (`nmcli connection up`, `networkctl reconfigure`); look with `ip link`",
        "epappas/gx10-cluster, decisions",
    ),
    50: (
        "only half the bandwidth, or traffic over the wrong function",
        "the two functions of a cage share a subnet, or the cables use different cages",
        "one subnet a function; the same cage on both nodes: phys_port_name decides, not the interface's name",
        "epappas/gx10-cluster; NVIDIA connect-two-sparks",
    ),
    51: (
        "no mlx5 device, or no carrier",
        "no cable: an uncabled ConnectX-7 takes itself off the bus (dgx-spark-mlnx-hotplug)",
        "seat the cable on both sides, then reboot the node that does not see it",
        "spark-fleet notes; /etc/nvidia/cx7-hotplug-enabled",
    ),
    52: (
        "nvidia-peermem is loaded",
        "GB10 has no GPUDirect RDMA, by design",
        "do not load it",
        "NVIDIA forum 348787",
    ),
    53: (
        "the engine's free-memory check fails by several GiB",
        "vm.min_free_kbytes of 4 GiB lowers what it sees by 6.2 GiB",
        "leave the default",
        "tonyd2wild's notes",
    ),
    54: (
        "decode falls from 37 to 1.8 tokens/s",
        "the node swaps",
        "vm.swappiness=1 (owners also run 0 and 60); look for what took the memory",
        "epappas/gx10-cluster, decisions",
    ),
    55: (
        "RDMA registration fails with a small LimitMEMLOCK",
        "registered memory is locked memory",
        "LimitMEMLOCK=infinity in the engine's unit",
        "epappas/gx10-cluster",
    ),
    56: (
        "the lock says yes and the clock under load is higher",
        "a lock above what power allows is ignored; it cannot be read back with nvidia-smi -q",
        "choose a cap that holds (2200), set it again, measure under load; restart the clock unit",
        "colonel-otto/3x-dgx-spark-mesh, GPU-CLOCKS-NOT-LOCKABLE; capetron/gb10-cluster-bench",
    ),
    57: (
        "CUDA 13.3 is not found, or the system's default has moved",
        "13.3 lies beside 13.0, in a prefix of its own",
        "run the accelerator stage; put /usr/local/cuda back to what the system's packages made it",
        "the first seed",
    ),
    58: (
        "the node's traffic leaves over a QSFP link",
        "a default route on a rail",
        "remove the gateway from that rail's configuration",
        "Reederey87, 01-verify-fabric",
    ),
    59: (
        "one node behaves differently with equal software",
        "BIOS or NIC firmware differ",
        "fwupdmgr update on the older one, then reboot both",
        "epappas/gx10-cluster; tonyd2wild's V4.1 kit, issue 1",
    ),
    60: (
        "both links are up and NCCL stays slow or hangs",
        "rail 1 of one node ends at rail 2 of the other",
        "swap the cables on one side, or the two addresses of one node",
        "NVIDIA/NemoClaw, managed-cluster-topology",
    ),
    61: (
        "the driver moved on one node",
        "a driver outside the set arrived through apt",
        "install the pinned driver on that node and reboot it; this project never does that unasked",
        "the first seed; epappas/gx10-cluster",
    ),
    62: (
        "the kernel moved, or will at the next boot",
        "a kernel outside the set arrived through apt",
        "set GRUB_DEFAULT to the pinned kernel, or remove the new one; reboot when it suits you",
        "microscaler/cylon-local-infra, roles/spark_kernel",
    ),
    63: (
        "the fabric is degraded",
        "the link trained low, the HCA is down or unmapped, or the cable makes errors",
        "reseat or exchange the cable; reboot; compare with the other node",
        "NVIDIA/NemoClaw, managed-cluster-topology (fabric-degraded)",
    ),
    64: (
        "a rail has no address, so RoCE has no GID for it",
        "the link was configured by something else, or not at all",
        "run the fabric stage: it brings up that one link",
        "NVIDIA/NemoClaw, managed-cluster-topology",
    ),
}

SYMPTOMS: dict[int, Symptom] = {
    row: Symptom(*words) for row, words in sorted({**HOST_ROWS, **ENGINE_ROWS}.items())
}
