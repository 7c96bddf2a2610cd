"""Owners' problems with host and fabric, rows of the symptom table."""

from __future__ import annotations

from twinspark.host.symptom import Symptom

HOST_ROWS: dict[int, Symptom] = {
    1: Symptom(
        "ibv_reg_mr_iova2: Cannot allocate memory; the worker dies right after NCCL's start; "
        "CmaFree above CmaTotal",
        "kernel 7.0.0-1019 reserves 9.3 GiB for kexec handover (KHO) as CMA memory",
        "boot with kho=off (package nvidia-spark-grub-kho), or stay on kernel 6.17.0-1032-nvidia",
        "NVIDIA forum 383254 and 383023; NV-Kernels PR 590, 591",
    ),
    2: Symptom(
        "after an upgrade and a reboot there is no /dev/nvidia*, on one node only",
        "kernel and driver modules are phased by machine id, and Sparks have no DKMS",
        "install the linux-modules-nvidia package of that kernel before rebooting; hold the "
        "set on both nodes",
        "NVIDIA forum 383312 and 383450",
    ),
    3: Symptom(
        "Failed to initialize NVML after an upgrade",
        "nvidia-modprobe of branch 610 beside driver 580: the system's pin file does not name "
        "that package",
        "install nvidia-modprobe of the driver's branch and hold it with the rest",
        "epappas/gx10-cluster, roles/base",
    ),
    4: Symptom(
        "nvidia-smi: No devices were found",
        "an OTA that was applied in part: the driver does not match the rest of its set "
        "(owners disagree: eight nodes "
        "with the same driver are well)",
        "apt full-upgrade and fwupdmgr update, reboot, until nvidia-spark-ota-check torn-score "
        "says 0; hold only then",
        "tonyd2wild's V4.1 kit, issue 1",
    ),
    5: Symptom(
        "a node reboots or wedges itself while serving",
        "nvidia-spark-run-apt-upgrade-once, apt-daily or fwupd updates it",
        "mask the units, hold the packages (role gpu_driver does both)",
        "microscaler/cylon-local-infra, roles/spark_kernel",
    ),
    6: Symptom(
        "both nodes freeze within a day; ping answers, sshd does not; _memdescAlloc errors",
        "driver 580.178.04 with kernel 7.0 (a correlation, one report)",
        "stay on 580.173.02 with kernel 6.17",
        "amasu, DGX OS 7.6.0 report",
        "`driver_pinned`, `kernel_memory_errors`",
    ),
    7: Symptom(
        "all ranks at 100% GPU and 18-20 W, silent",
        "NCCL 2.28.9 leaks proxy slots on aarch64",
        "NCCL 2.29.3 or newer in the engine's environment; see which library the process has "
        "mapped",
        "NVIDIA/nccl 2353; vllm 40969; sglang 33289",
    ),
    8: Symptom(
        "the same picture with NCCL 2.30.7",
        "ncclIbIsend reads nreqs before idx: a fence is missing on aarch64",
        "open: PR 2393 is not in a release. Restart the pair; a build with the fence is known "
        "to help",
        "NVIDIA/nccl 1983, PR 2393",
        "no check sees it: guard first_token says that the pair is stuck",
    ),
    9: Symptom(
        "the load of the experts hangs",
        "NVLS in NCCL 2.30.4",
        "NCCL_NVLS_ENABLE=0",
        "NVIDIA/nccl 2167",
    ),
    10: Symptom(
        "a 200G link delivers 13 Gb/s",
        "the ConnectX-7 came up with throttled slot power (the kernel's 27 W line is no sign: "
        "healthy links print it)",
        "reboot with the cables seated; if that does not help, pull the power for a minute; "
        "then measure again",
        "dgx-spark-playbooks PR 108; NVIDIA forum 363461; the first seed",
    ),
    11: Symptom(
        "collectives at a fraction on one node, every counter clean",
        "unknown; seen after long uptime",
        "reboot that node; judge by a 64 MiB NCCL collective, not by ping or TCP",
        "colonel-otto/3x-dgx-spark-mesh, FABRIC-FIX-PARITY",
    ),
    12: Symptom(
        "the engine dies minutes after someone opened NVIDIA Sync",
        "Sync runs `netplan apply`, which bounces every connection; the GID table changes "
        "under NCCL",
        "remove this pair from Sync; take rails out of other netplan files; restart the pair",
        "colonel-otto/3x-dgx-spark-mesh, troubleshooting",
    ),
    13: Symptom(
        "fatal AER, mlx5_pci_slot_reset, the host is gone",
        "PCIe error recovery of the ConnectX-7",
        "reboot; a hardware watchdog shortens the wait. Open",
        "MiaAI-Lab issue 146",
    ),
    14: Symptom(
        "the unit powers off, and stays off, seconds into a prefill of 128k tokens; pstore is "
        "empty",
        "a power transient on a hot unit",
        "cap the clock: nvidia-smi -lgc 300,2200 at boot (role clock_cap); 2 of 2 power-offs "
        "became 0 of 6",
        "capetron/gb10-cluster-bench, power-offs-and-clock-lock; NVIDIA forum 373251, 377478",
    ),
    15: Symptom(
        "NV_ERR_NO_MEMORY 0x51 in _memdescAllocInternal, then a hang",
        "allocation churn on unified memory (autotune, indexer logits)",
        "autotune off, memory share at most 0.80, VLLM_SPARSE_INDEXER_MAX_LOGITS_MB 64-256; reboot",
        "dgx-spark-playbooks 97; open-gpu-kernel-modules 1358; vllm 55569",
    ),
    16: Symptom(
        "the load ends without memory at 73-97%, though 116 GiB are `available`",
        "page cache counts as used for the GPU",
        "drop the page cache before the start, never beside a running engine (memory admission "
        "does this)",
        "vllm 45179; colonel-otto/3x-dgx-spark-mesh",
    ),
    17: Symptom(
        "ptxas fatal: sm_121a is not defined",
        "Triton's ptxas is older than the chip",
        "the locked Triton 3.7.1, whose ptxas-blackwell knows the chip, and no "
        "TRITON_PTXAS_BLACKWELL_PATH to another (TRITON_PTXAS_PATH is of older Tritons)",
        "triton 8539, 10331",
    ),
    18: Symptom(
        "Python.h: No such file, at the first request",
        "Triton compiles a launcher and there are no headers",
        "install python3.12-dev (role host_baseline)",
        "vllm 27890; tabbyAPI 456",
    ),
    19: Symptom(
        "FlashInfer's or DeepGEMM's compilation fails or stalls in the unit only",
        "nvcc, cicc or ninja are not on the unit's PATH",
        "PATH and CUDA_HOME in the unit's environment; ninja installed",
        "vllm 49497",
    ),
    20: Symptom(
        "the provided PTX was compiled with an unsupported toolchain",
        "PTX of CUDA 13.2 or newer on a driver of branch 580",
        "build machine code for 12.1a only, no +PTX",
        "nvbandwidth 61; gpu-burn 145",
    ),
    29: Symptom(
        "a hang at the start though the fabric is fine",
        "ufw drops NCCL's bootstrap, whose port is chosen at run time",
        "ufw allow from the peer's rail addresses, without a port",
        "epappas/gx10-cluster, decisions",
    ),
    40: Symptom(
        "the engine is killed every few minutes",
        "earlyoom (or another guard) picks the largest process",
        "give it an --avoid list (role host_baseline does), or switch it off",
        "MiaAI-Lab README; tonyd2wild issue 31",
    ),
    41: Symptom(
        "host daemons eat the reserve: polkitd at 3.4 GiB",
        "a dashboard that logs in by ssh several times a second",
        "restart the daemon; one shared connection, or exporters on the node",
        "a GLM operations report",
    ),
    43: Symptom(
        "checks fail on a healthy fabric",
        "iproute2 6.1.0 leaves `dev` out of its JSON, or writes `from`",
        "nothing to do: both shapes are read",
        "NVIDIA/NemoClaw 8519, 8684, PR 8692",
        "the parsers' tests (fault switch iproute2_old)",
    ),
    44: Symptom(
        "a unit powered off while 160 GB were hashed (one report)",
        "page cache and an idle GPU; unproven",
        "verify the weights before the engine is loaded, never beside it",
        "tonyd2wild PR 19",
        "playbooks/weights.yml, which comes before the engine",
    ),
    45: Symptom(
        "stuck at 30 W and 500-850 MHz",
        "USB-PD fell back to a lower power level",
        "pull the power of the unit for a minute; on DGX OS 7.6.0 also kho=off",
        "NVIDIA forum 355255, 383926",
    ),
    46: Symptom(
        "a kernel oops of the Wi-Fi driver wedges the network stack",
        "MT7925",
        "use the wired port; nmcli radio wifi off",
        "MiaAI-Lab PR 157; microscaler/cylon-local-infra, roles/spark_wifi",
    ),
    47: Symptom(
        "two units answer with the same SSH host key",
        "keys came with the factory image (CVE-2026-24218)",
        "on one unit: remove /etc/ssh/ssh_host_*, run ssh-keygen -A, restart ssh; then renew "
        "known_hosts",
        "NVIDIA forum 374930",
    ),
}
