"""Cables, links, HCAs, addresses: what the two nodes talk over."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from twinspark.host import parse
from twinspark.host.check import Check, Finding
from twinspark.host.node import NotAskedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinspark.host.expect import RailWish
    from twinspark.host.node import Node

SLOT_POWER = (8.0, 25.0)  # Gb/s: a rail between these has been seen only with throttled slot power


def each_rail(
    node: Node, expected: str, look: Callable[[RailWish], str], detail: str = ""
) -> Finding:
    """Ask the same of every rail; `look` returns "" when all is well, else what is wrong."""
    if not node.expect.rails:
        raise NotAskedError("no rails are wanted")
    wrong = [f"{rail.interface}: {said}" for rail in node.expect.rails if (said := look(rail))]
    return Finding(not wrong, expected, "; ".join(wrong) or expected, detail)


def cx7_present(node: Node) -> Finding:
    """The bus shows the NIC."""
    found = [line.split()[0] for line in node.text("lspci").splitlines() if "Mellanox" in line]
    detail = "an uncabled ConnectX-7 takes itself off the bus: plug the cable in on both sides"
    return Finding(
        bool(found), "ConnectX-7 functions on the bus", ", ".join(found) or "none", detail
    )


def link_carrier(node: Node) -> Finding:
    """Both rails have carrier."""

    def look(rail: RailWish) -> str:
        link = node.links.get(rail.interface)
        return "no such interface" if link is None else "" if link.carrier else "no carrier"

    return each_rail(node, "carrier", look)


def link_mtu(node: Node) -> Finding:
    """The link, not the configuration, has the MTU."""

    def look(rail: RailWish) -> str:
        found = node.links[rail.interface].mtu
        return "" if found == node.expect.mtu else f"MTU {found}"

    return each_rail(
        node,
        f"MTU {node.expect.mtu}",
        look,
        "NetworkManager shows a changed MTU without applying it",
    )


def link_speed(node: Node) -> Finding:
    """The link trained at full speed."""
    wanted = node.expect.link_gbps
    if wanted is None:
        raise NotAskedError("no link speed is wanted")

    def look(rail: RailWish) -> str:
        line = next(
            (one for one in node.text(f"ethtool:{rail.interface}").splitlines() if "Speed:" in one),
            "",
        )
        found = parse.number(line)
        return "" if found is not None and found >= wanted * 1000 else line.strip() or "no speed"

    return each_rail(node, f"{wanted:g} Gb/s link", look)


def rail_addresses(node: Node) -> Finding:
    """Each rail has the inventory's address."""

    def look(rail: RailWish) -> str:
        found = node.links[rail.interface].addresses
        return (
            ""
            if rail.address in found
            else f"has {', '.join(found) or 'no address'}, wanted {rail.address}"
        )

    return each_rail(node, "the inventory's addresses", look)


def subnets_distinct(node: Node) -> Finding:
    """No subnet lies on two rails: the kernel would send everything over one."""
    place: dict[str, str] = {}
    shared: set[str] = set()
    for rail in node.expect.rails:
        link = node.links.get(rail.interface)
        for address in link.addresses if link else ():
            network = str(ipaddress.ip_interface(address).network)
            if place.setdefault(network, rail.interface) != rail.interface:
                shared.add(network)
    return Finding(not shared, "each rail its own subnet", ", ".join(sorted(shared)) or "distinct")


def ports(node: Node) -> dict[str, str]:
    """Return rail -> physical port name (p0, p1); names of interfaces are no proof of a cage.

    Raises:
        NotAskedError: The interfaces have no physical port.
    """
    found = {
        rail.interface: node.files.get(
            f"/sys/class/net/{rail.interface}/phys_port_name", ""
        ).strip()
        for rail in node.expect.rails
    }
    if not all(found.values()):
        raise NotAskedError("the interfaces name no physical port")
    return found


def rails_one_cage(node: Node) -> Finding:
    """With one cable, both functions are of one cage; with two cables, two functions each."""
    found = ports(node)
    counts = [list(found.values()).count(name) for name in set(found.values())]
    said = ", ".join(f"{rail} {name}" for rail, name in found.items())
    return Finding(all(count == 2 for count in counts), "two rails a cage", said)


def same_port(nodes: Sequence[Node]) -> Finding:
    """Both nodes use the same cage."""
    found = {node.name: " ".join(ports(node).values()) for node in nodes}
    said = ", ".join(f"{name} {value}" for name, value in found.items())
    return Finding(len(set(found.values())) == 1, "the same port on both nodes", said)


def hca_mapped(node: Node) -> Finding:
    """Each rail has an HCA, and the inventory, where it names one, names that."""
    found = node.hca_map

    def look(rail: RailWish) -> str:
        has = found.get(rail.interface)
        if has is None:
            return "no HCA"
        return "" if rail.hca in {"", has} else f"has {has}, the inventory says {rail.hca}"

    return each_rail(node, "an HCA a rail", look)


def hca_active(node: Node) -> Finding:
    """The rails' HCAs are active."""
    # ibv_devinfo fails when there is no HCA, and says so
    hcas, names = parse.hcas(node.text("hca", failing=True)), node.hca_map

    def look(rail: RailWish) -> str:
        hca = hcas.get(names[rail.interface])
        return (
            "not listed"
            if hca is None
            else ""
            if hca.state == "PORT_ACTIVE"
            else f"{hca.name} {hca.state}"
        )

    return each_rail(node, "PORT_ACTIVE", look)


def hca_mtu(node: Node) -> Finding:
    """The HCA took the link's MTU over (4096 is RoCE's largest)."""
    hcas, names = parse.hcas(node.text("hca")), node.hca_map

    def look(rail: RailWish) -> str:
        found = hcas[names[rail.interface]].active_mtu
        return "" if found >= node.expect.hca_mtu else f"active_mtu {found}"

    return each_rail(node, f"active_mtu {node.expect.hca_mtu}", look)


def gid_index(node: Node, rail: RailWish) -> int | None:
    """Return the index of the RoCEv2 GID that carries the rail's address."""
    table = parse.gid_tables(dict(node.files)).get(node.hca_map.get(rail.interface, ""), ())
    wanted = rail.address.split("/")[0]
    return next((one.index for one in table if one.address == wanted and "v2" in one.kind), None)


def gid_present(node: Node) -> Finding:
    """Each rail's address has a RoCEv2 GID."""

    def look(rail: RailWish) -> str:
        return "" if gid_index(node, rail) is not None else "no RoCEv2 GID for its address"

    return each_rail(node, "a RoCEv2 GID a rail", look)


CHECKS = (
    Check("cx7_present", "fabric", 51, "the NIC is on the bus", cx7_present),
    Check(
        "link_carrier",
        "fabric",
        51,
        "both rails have carrier",
        link_carrier,
        after=("cx7_present",),
    ),
    Check("link_mtu", "fabric", 49, "the links have the MTU", link_mtu, after=("link_carrier",)),
    Check(
        "link_speed",
        "fabric",
        63,
        "the links trained at full speed",
        link_speed,
        after=("link_carrier",),
    ),
    Check(
        "rail_addresses",
        "fabric",
        64,
        "the rails have their addresses",
        rail_addresses,
        after=("link_carrier",),
    ),
    Check(
        "subnets_distinct",
        "fabric",
        50,
        "each rail has its own subnet",
        subnets_distinct,
        after=("rail_addresses",),
    ),
    Check(
        "rails_one_cage", "fabric", 50, "two rails a cage", rails_one_cage, after=("cx7_present",)
    ),
    Check(
        "same_port",
        "fabric",
        50,
        "the cable is in the same cage on both nodes",
        pair=same_port,
        after=("cx7_present", "rails_one_cage"),
    ),
    Check("hca_mapped", "fabric", 63, "each rail has an HCA", hca_mapped, after=("cx7_present",)),
    Check(
        "hca_active",
        "fabric",
        63,
        "the HCAs are active",
        hca_active,
        after=("hca_mapped", "link_carrier"),
    ),
    Check(
        "hca_mtu",
        "fabric",
        49,
        "the HCAs use the large MTU",
        hca_mtu,
        after=("hca_active", "link_mtu"),
    ),
    Check(
        "gid_present",
        "fabric",
        64,
        "each rail has a RoCEv2 GID",
        gid_present,
        after=("hca_mapped", "rail_addresses", "hca_active"),
    ),
)
