"""Facts about the hardware that a check watches, rows of the symptom table from 49 on."""

from __future__ import annotations

from twinspark.host.symptom import Symptom

HARDWARE_ROWS: dict[int, Symptom] = {
    49: Symptom(
        "bandwidth is a few per cent low, or large packets vanish",
        "the MTU was changed in the configuration and not on the link; the HCA then stays at 1024",
        "bring that one link up again (`nmcli connection up`, `networkctl reconfigure`); look "
        "with `ip link`",
        "epappas/gx10-cluster, decisions",
    ),
    50: Symptom(
        "only half the bandwidth, or traffic over the wrong function",
        "the two functions of a cage share a subnet, or the cables use different cages",
        "one subnet a function; the same cage on both nodes: phys_port_name decides, not the "
        "interface's name",
        "epappas/gx10-cluster; NVIDIA connect-two-sparks",
    ),
    51: Symptom(
        "no mlx5 device, or no carrier",
        "no cable: an uncabled ConnectX-7 takes itself off the bus (dgx-spark-mlnx-hotplug)",
        "seat the cable on both sides, then reboot the node that does not see it",
        "spark-fleet notes; /etc/nvidia/cx7-hotplug-enabled",
    ),
    52: Symptom(
        "nvidia-peermem is loaded",
        "GB10 has no GPUDirect RDMA, by design",
        "do not load it",
        "NVIDIA forum 348787",
    ),
    53: Symptom(
        "the engine's free-memory check fails by several GiB",
        "vm.min_free_kbytes of 4 GiB lowers what it sees by 6.2 GiB",
        "leave the default",
        "tonyd2wild's notes",
    ),
    54: Symptom(
        "decode falls from 37 to 1.8 tokens/s",
        "the node swaps",
        "vm.swappiness=1 (owners also run 0 and 60); look for what took the memory",
        "epappas/gx10-cluster, decisions",
    ),
    55: Symptom(
        "RDMA registration fails with a small LimitMEMLOCK",
        "registered memory is locked memory",
        "LimitMEMLOCK=infinity in the engine's unit",
        "epappas/gx10-cluster",
    ),
    56: Symptom(
        "the lock says yes and the clock under load is higher",
        "a lock above what power allows is ignored; it cannot be read back with nvidia-smi -q",
        "choose a cap that holds (2200), set it again, measure under load; restart the clock unit",
        "colonel-otto/3x-dgx-spark-mesh, GPU-CLOCKS-NOT-LOCKABLE; capetron/gb10-cluster-bench",
    ),
    57: Symptom(
        "CUDA 13.3 is not found, or the system's default has moved",
        "13.3 lies beside 13.0, in a prefix of its own",
        "run the accelerator stage; put /usr/local/cuda back to what the system's packages made it",
        "the first seed",
    ),
    58: Symptom(
        "the node's traffic leaves over a QSFP link",
        "a default route on a rail",
        "remove the gateway from that rail's configuration",
        "Reederey87, 01-verify-fabric",
    ),
    59: Symptom(
        "one node behaves differently with equal software",
        "BIOS or NIC firmware differ",
        "fwupdmgr update on the older one, then reboot both",
        "epappas/gx10-cluster; tonyd2wild's V4.1 kit, issue 1",
    ),
    60: Symptom(
        "both links are up and NCCL stays slow or hangs",
        "rail 1 of one node ends at rail 2 of the other",
        "swap the cables on one side, or the two addresses of one node",
        "NVIDIA/NemoClaw, managed-cluster-topology",
    ),
    61: Symptom(
        "the driver moved on one node",
        "a driver outside the set arrived through apt",
        "install the pinned driver on that node and reboot it; this project never does that "
        "unasked",
        "the first seed; epappas/gx10-cluster",
    ),
    62: Symptom(
        "the kernel moved, or will at the next boot",
        "a kernel outside the set arrived through apt",
        "set GRUB_DEFAULT to the pinned kernel, or remove the new one; reboot when it suits you",
        "microscaler/cylon-local-infra, roles/spark_kernel",
    ),
    63: Symptom(
        "the fabric is degraded",
        "the link trained low, the HCA is down or unmapped, or the cable makes errors",
        "reseat or exchange the cable; reboot; compare with the other node",
        "NVIDIA/NemoClaw, managed-cluster-topology (fabric-degraded)",
    ),
    64: Symptom(
        "a rail has no address, so RoCE has no GID for it",
        "the link was configured by something else, or not at all",
        "run the fabric stage: it brings up that one link",
        "NVIDIA/NemoClaw, managed-cluster-topology",
    ),
}
