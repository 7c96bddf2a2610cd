"""The ConnectX-7 as its tools show it, and the host's network programs for runs without the lab."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import Answer
    from .state import Rail, State


def _rail(state: State, argv: list[str]) -> Rail | None:
    return next(
        (rail for rail in state.rails if {rail.interface, rail.hca, rail.pci} & set(argv)), None
    )


def gid_of(address: str) -> str:
    """Return the IPv4-mapped GID as sysfs writes it."""
    octets = [int(part) for part in address.split("/", maxsplit=1)[0].split(".")]
    return "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)


def link_local(mac: str) -> str:
    """Return the link-local GID that every RoCE port carries at the first two indexes."""
    part = mac.split(":")
    first = f"{int(part[0], 16) ^ 2:02x}"
    return f"fe80:0000:0000:0000:{first}{part[1]}:{part[2]}ff:fe{part[3]}:{part[4]}{part[5]}"


def gids(rail: Rail) -> dict[int, tuple[str, str]]:
    """Return the GID table: index -> (GID, type)."""
    table = {0: (link_local(rail.mac), "IB/RoCE v1"), 1: (link_local(rail.mac), "RoCE v2")}
    if rail.has_gid:
        table[rail.gid_index - 1] = (gid_of(rail.address), "IB/RoCE v1")
        table[rail.gid_index] = (gid_of(rail.address), "RoCE v2")
    return table


def ibv_devinfo(state: State, argv: list[str]) -> Answer:
    """HCAs with state and MTU."""
    del argv
    blocks = []
    for rail in state.rails if state.cx7 else []:
        number = 4 if rail.hca_state == "PORT_ACTIVE" else 1
        blocks.append(
            f"hca_id:\t{rail.hca}\n\ttransport:\t\t\tInfiniBand "
            f"(0)\n\tfw_ver:\t\t\t\t{state.firmware.split()[0]}\n"
            f"\tvendor_id:\t\t\t0x02c9\n\tvendor_part_id:\t\t\t4129\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n"
            f"\t\t\tstate:\t\t\t{rail.hca_state} ({number})\n\t\t\tmax_mtu:\t\t4096 (5)\n"
            f"\t\t\tactive_mtu:\t\t{rail.active_mtu} "
            f"({rail.active_mtu.bit_length() - 8})\n\t\t\tlink_layer:\t\tEthernet\n"
        )
    return (0, "\n".join(blocks), "") if blocks else (255, "", "No IB devices found\n")


def ibdev2netdev(state: State, argv: list[str]) -> Answer:
    """Which HCA belongs to which interface."""
    del argv
    return (
        0,
        "".join(
            f"{rail.hca} port 1 ==> {rail.interface} ({'Up' if rail.carrier else 'Down'})\n"
            for rail in state.rails
            if rail.mapped and state.cx7
        ),
        "",
    )


def ethtool(state: State, argv: list[str]) -> Answer | None:
    """Speed, or driver and firmware, of a rail; None: another interface, ask the real one."""
    rail = _rail(state, argv)
    if rail is None:
        return None
    if "-i" in argv:
        rows = ("driver: mlx5_core", f"firmware-version: {state.firmware}", f"bus-info: {rail.pci}")
        return 0, "\n".join(rows) + "\n", ""
    speed = f"{rail.speed}Mb/s" if rail.carrier else "Unknown!"
    return (
        0,
        (
            f"Settings for {rail.interface}:\n\tSupported ports: [ Backplane ]\n\tSpeed: "
            f"{speed}\n\tDuplex: Full\n"
            f"\tAuto-negotiation: on\n\tLink detected: {'yes' if rail.carrier else 'no'}\n"
        ),
        "",
    )


def lspci(state: State, argv: list[str]) -> Answer | None:
    """Mellanox functions."""
    if "15b3:" not in argv:
        return None
    return (
        0,
        "".join(
            f"{rail.pci} Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
            for rail in state.rails
            if state.cx7
        ),
        "",
    )


def mlxlink(state: State, argv: list[str]) -> Answer:
    """Physical counters of one port as JSON."""
    rail = _rail(state, argv)
    if rail is None or not state.cx7:
        return 1, "", "-E- Failed to open device\n"
    output = {
        "Operational Info": {"State": "Active", "Speed": "200G", "Width": "4x"},
        "Physical Counters and BER Info": {
            "Effective Physical BER": rail.ber,
            "Effective Physical Errors": "0" if rail.ber == "15E-255" else "918273",
        },
    }
    return (
        0,
        json.dumps({"status": {"code": 0, "message": "success"}, "result": {"output": output}}),
        "",
    )


def ib_write_bw(state: State, argv: list[str]) -> Answer:
    """Bandwidth of the rail named with -d, in Gb/s as with --report_gbits."""
    rail = _rail(state, argv)
    if rail is None or not state.cx7:
        return 1, "", "Unable to find the Infiniband/RoCE device\n"
    if not rail.carrier or rail.hca_state != "PORT_ACTIVE":
        return 1, "", " Port number 1 state is Down\n"
    return (
        0,
        (
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
            f" 65536      5000             {rail.gbps + 0.2:.2f}              {rail.gbps:.2f}  "
            f"           0.187\n"
        ),
        "",
    )


def ip(state: State, argv: list[str]) -> Answer:
    """`ip -j addr|route|neigh show` in the shape of the iproute2 that is switched on."""
    if "route" in argv:
        rows: list[dict[str, Any]] = [
            {"dst": "default", "gateway": "192.168.1.1", "dev": "enP7s7"},
            *state.routes,
        ]
    elif "neigh" in argv:
        rows = [_neighbour(state, rail) for rail in state.rails]
    else:
        rows = [_link(rail) for rail in state.rails if state.cx7] + [_wifi(state)]
    return 0, json.dumps(rows), ""


def _neighbour(state: State, rail: Rail) -> dict[str, Any]:
    head, last = rail.address.split("/")[0].rsplit(".", 1)
    row = {
        "dst": f"{head}.{23 - int(last)}",
        "dev": rail.interface,
        "lladdr": rail.peer_mac,
        "state": ["REACHABLE"],
    }
    if state.iproute_old:  # 6.1.0 leaves `dev` out when one device was asked for
        del row["dev"]
    return row


def _link(rail: Rail) -> dict[str, Any]:
    flags = ["BROADCAST", "MULTICAST", "UP", *(["LOWER_UP"] if rail.carrier else ["NO-CARRIER"])]
    addresses = [rail.address, *rail.more_addresses] if rail.configured else []
    return {
        "ifname": rail.interface,
        "flags": flags,
        "mtu": rail.mtu,
        "operstate": "UP" if rail.carrier else "DOWN",
        "address": rail.mac,
        "phys_port_name": rail.port_name,
        "addr_info": [
            {"family": "inet", "local": one.split("/")[0], "prefixlen": int(one.split("/")[1])}
            for one in addresses
        ],
    }


def _wifi(state: State) -> dict[str, Any]:
    up = state.wifi_up
    return {
        "ifname": "wlP9s9",
        "flags": ["BROADCAST", "MULTICAST", *(["UP", "LOWER_UP"] if up else [])],
        "mtu": 1500,
        "operstate": "UP" if up else "DOWN",
        "address": "aa:bb:cc:00:00:01",
        "addr_info": [],
    }


def ping(state: State, argv: list[str]) -> Answer:
    """A ping over one rail: large packets may not pass."""
    rail = _rail(state, argv)
    ok = rail is not None and rail.carrier and rail.jumbo
    return (
        (0, "2 packets transmitted, 2 received, 0% packet loss\n", "")
        if ok
        else (1, "2 packets transmitted, 0 received\n", "")
    )


def systemctl(state: State, argv: list[str]) -> Answer:
    """`systemctl show -p ... UNITS`."""
    blocks = []
    for name in (word for word in argv if "." in word):
        load, active, enabled = state.units.get(name, ("not-found", "inactive", ""))
        blocks.append(
            f"Id={name}\nLoadState={load}\nActiveState={active}\nUnitFileState={enabled}\n"
        )
    return 0, "\n".join(blocks), ""
