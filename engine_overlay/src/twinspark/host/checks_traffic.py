"""What goes over the fabric, and what may not touch it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from twinspark.host import parse
from twinspark.host.check import Check, Finding
from twinspark.host.checks_driver import equal
from twinspark.host.checks_fabric import SLOT_POWER, each_rail, gid_index
from twinspark.host.node import NoAnswerError, NotAskedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinspark.host.expect import RailWish
    from twinspark.host.node import Node

OWN_NETPLAN = "twinspark"
BER_CEILING = 1e-12  # above it the port's own error correction is at its end


def gid_stable(node: Node) -> Finding:
    """The GIDs are where the deploy found them: a running engine holds the old index."""

    def indexes(text: str) -> dict[str, int | None]:
        return {str(one["interface"]): one["gid_index"] for one in json.loads(text)["rails"]}

    deployed = node.read("/etc/twinspark/fabric.json", indexes)

    def look(rail: RailWish) -> str:
        now, then = gid_index(node, rail), deployed.get(rail.interface)
        return "" if then in {None, now} else f"index {then} at the deploy, {now} now"

    return each_rail(node, "GIDs as deployed", look)


def jumbo_ping(node: Node) -> Finding:
    """Packets of the full MTU pass, unfragmented."""

    def look(rail: RailWish) -> str:
        if not rail.peer:
            return ""
        command = f"ping:{rail.interface}"
        text = node.text(command, failing=True)
        if not node.succeeded(command):
            return f"to {rail.peer}: {text.strip()[-90:]}"
        if " received" not in text:
            raise NoAnswerError(f"{command} counted no packets: {text[:80]!r}")
        return ""

    size = node.expect.mtu - 28
    return each_rail(node, f"{size}-byte pings pass", look)


def reciprocal(nodes: Sequence[Node]) -> Finding:
    """Rail N of one node ends at rail N of the other."""
    wrong = []
    for node, other in ((nodes[0], nodes[1]), (nodes[1], nodes[0])):
        macs = node.parsed("neigh", parse.neighbours)
        for mine, theirs in zip(node.expect.rails, other.expect.rails, strict=True):
            address = mine.peer or theirs.address.split("/")[0]
            seen, link = macs.get(address), other.links.get(theirs.interface)
            if seen is None or link is None:
                said = f"{node.name} knows no neighbour {address}"
                raise NoAnswerError(said if link else f"{other.name} has no {theirs.interface}")
            if seen != link.mac:
                wrong.append(
                    f"{node.name} {mine.interface} sees {seen}, {other.name} "
                    f"{theirs.interface} is {link.mac}"
                )
    return Finding(not wrong, "rail N ends at rail N", "; ".join(wrong) or "reciprocal")


def rail_bandwidth(node: Node) -> Finding:
    """Each rail carries what a healthy one does."""
    floor = node.expect.rail_gbps_floor
    if floor is None:
        raise NotAskedError("no bandwidth is wanted")
    figures: dict[str, float | None] = {}
    for rail in node.expect.rails:
        text = node.text(f"bandwidth:{rail.interface}", failing=True)
        figures[rail.interface] = parse.bandwidth(text)
    said = ", ".join(
        f"{name} {value:g} Gb/s" if value else f"{name} nothing" for name, value in figures.items()
    )
    low = [value or 0.0 for value in figures.values() if (value or 0.0) < floor]
    row = 10 if any(SLOT_POWER[0] <= value <= SLOT_POWER[1] for value in low) else 11
    detail = (
        "8-25 Gb/s: reboot, or pull the power, with the cables seated" if low and row == 10 else ""
    )
    return Finding(not low, f"at least {floor:g} Gb/s a rail", said, detail, row)


def link_errors(node: Node) -> Finding:
    """The port's bit error rate is that of a good cable."""

    def look(rail: RailWish) -> str:
        rate = node.parsed(f"mlxlink:{rail.interface}", parse.bit_error_rate)
        return "" if rate <= BER_CEILING else f"effective bit error rate {rate:g}"

    return each_rail(node, f"bit error rate <= {BER_CEILING:g}", look)


def firmware_equal(nodes: Sequence[Node]) -> Finding:
    """Both NICs have one firmware."""
    found = {}
    for node in nodes:
        texts = [node.text(f"firmware:{rail.interface}") for rail in node.expect.rails]
        lines = re.findall(r"firmware-version:\s*(\S+)", " ".join(texts))
        found[node.name] = " ".join(sorted(set(lines)))
    return equal(found)


def rails_owned_once(node: Node) -> Finding:
    """No netplan file but ours names a rail: anyone's `netplan apply` would touch the fabric."""
    files = {
        path: text
        for path, text in node.matching("/etc/netplan/*.yaml").items()
        if OWN_NETPLAN not in path
    }
    names = [rail.interface for rail in node.expect.rails]
    claims = [
        path
        for path, text in files.items()
        if any(re.search(rf"\b{name}\b", text) for name in names)
    ]
    return Finding(
        not claims, "only twinspark's file names a rail", ", ".join(claims) or "no other"
    )


def no_default_route(node: Node) -> Finding:
    """No default route goes over a rail."""
    names = {rail.interface for rail in node.expect.rails}
    found = sorted(names & set(node.parsed("route", parse.default_routes)))
    return Finding(not found, "no default route on a rail", ", ".join(found) or "none")


def firewall_peers(node: Node) -> Finding:
    """A firewall lets the peer's rail addresses in wholesale, as NCCL's bootstrap port varies."""
    if "ENABLED=yes" not in node.file("/etc/ufw/ufw.conf"):
        return Finding(ok=True, expected="peers allowed", actual="ufw is off")
    rules = node.files.get("/etc/ufw/user.rules", "")
    shut = [
        rail.peer
        for rail in node.expect.rails
        if rail.peer and not re.search(rf"allow any any .*{re.escape(rail.peer)}\b", rules)
    ]
    return Finding(
        not shut,
        "ufw allows the peer's rail addresses",
        f"not allowed: {', '.join(shut) or 'none'}",
    )


def wifi_off(node: Node) -> Finding:
    """Wi-Fi is down."""
    found = [name for name, link in node.links.items() if name.startswith("wl") and link.up]
    return Finding(not found, "Wi-Fi down", ", ".join(found) or "down")


def no_peermem(node: Node) -> Finding:
    """The GPUDirect module is not loaded: GB10 has no GPUDirect RDMA."""
    loaded = "nvidia_peermem" in node.file("/proc/modules")
    return Finding(not loaded, "nvidia_peermem not loaded", "loaded" if loaded else "not loaded")


def pcie_errors(node: Node) -> Finding:
    """The kernel saw no fatal PCIe error of the NIC."""
    lines = [
        line
        for line in node.text("dmesg").splitlines()
        if re.search(r"mlx5_pci_slot_reset|AER:.*[Ff]atal", line)
    ]
    return Finding(not lines, "no fatal AER", lines[-1].strip()[:120] if lines else "none")


CHECKS = (
    Check(
        "gid_stable",
        "fabric",
        12,
        "the GIDs are where the deploy found them",
        gid_stable,
        after=("gid_present",),
    ),
    Check(
        "jumbo_ping",
        "fabric",
        49,
        "full-size packets pass",
        jumbo_ping,
        after=("link_carrier", "link_mtu", "rail_addresses"),
    ),
    Check(
        "reciprocal",
        "fabric",
        60,
        "rail N ends at rail N",
        pair=reciprocal,
        after=("link_carrier", "rail_addresses"),
    ),
    Check(
        "rail_bandwidth",
        "bandwidth",
        10,
        "each rail is fast enough",
        rail_bandwidth,
        after=("hca_active", "jumbo_ping"),
    ),
    Check(
        "link_errors",
        "fabric",
        63,
        "the cable makes no errors",
        link_errors,
        after=("cx7_present", "link_carrier"),
    ),
    Check(
        "firmware_equal",
        "fabric",
        59,
        "one NIC firmware on both nodes",
        pair=firmware_equal,
        after=("cx7_present",),
        warns=True,
    ),
    Check(
        "rails_owned_once",
        "fabric",
        12,
        "nobody else configures a rail",
        rails_owned_once,
        warns=True,
    ),
    Check("no_default_route", "fabric", 58, "no default route on a rail", no_default_route),
    Check("firewall_peers", "fabric", 29, "the firewall lets the peer in", firewall_peers),
    Check("wifi_off", "fabric", 46, "Wi-Fi is off", wifi_off, warns=True),
    Check("no_peermem", "fabric", 52, "nvidia-peermem is not loaded", no_peermem, warns=True),
    Check("pcie_errors", "log", 13, "no fatal PCIe error", pcie_errors, warns=True),
)
