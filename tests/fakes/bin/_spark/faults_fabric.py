"""Faults of cables, links, HCAs and addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .faults_kit import Fault

if TYPE_CHECKING:
    from .state import State


def _slow(state: State) -> None:
    for rail in state.rails:
        rail.gbps = 13.0


def _weak(state: State) -> None:
    state.rails[1].gbps = 61.0


def _carrier(state: State) -> None:
    state.rails[1].carrier = False


def _mtu(state: State) -> None:
    state.rails[0].mtu = 1500


def _active_mtu(state: State) -> None:
    state.rails[0].active_mtu = 1024


def _speed(state: State) -> None:
    state.rails[0].speed = 100_000


def _no_cx7(state: State) -> None:
    state.cx7 = False


def _hca_down(state: State) -> None:
    state.rails[1].hca_state = "PORT_DOWN"


def _unmapped(state: State) -> None:
    state.rails[1].mapped = False


def _other_port(state: State) -> None:
    for rail in state.rails:
        rail.port_name = "p1"


def _two_cages(state: State) -> None:
    state.rails[1].port_name = "p1"


def _address(state: State) -> None:
    state.rails[1].configured = False
    state.rails[1].has_gid = False


def _subnet(state: State) -> None:
    state.rails[1].more_addresses = [f"10.77.1.2{state.rank + 1}/24"]


def _gid_moved(state: State) -> None:
    state.rails[0].gid_index = 5


def _gid_gone(state: State) -> None:
    state.rails[0].has_gid = False


def _jumbo(state: State) -> None:
    state.rails[0].jumbo = False


def _crossed(state: State) -> None:
    first, second = state.rails
    first.peer_mac, second.peer_mac = second.peer_mac, first.peer_mac


def _errors(state: State) -> None:
    state.rails[0].ber = "3E-9"


def _firmware(state: State) -> None:
    state.firmware = "28.44.1036 (NVD0000000087)"


def _sync(state: State) -> None:
    state.files["/etc/netplan/40-cx7.yaml"] = "    enp1s0f0np0:\n      dhcp4: false\n"


def _default_route(state: State) -> None:
    state.routes.append({"dst": "default", "gateway": "10.77.1.1", "dev": state.rails[0].interface})


def _ufw(state: State) -> None:
    state.files["/etc/ufw/ufw.conf"] = "ENABLED=yes\n"
    state.files["/etc/ufw/user.rules"] = "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n"


def _ufw_open(state: State) -> None:
    _ufw(state)
    allow = "### tuple ### allow any any 0.0.0.0/0 any {} in\n"
    peers = [f"10.77.{number}.1{2 - state.rank}" for number in (1, 2)]
    state.files["/etc/ufw/user.rules"] = "".join(allow.format(peer) for peer in peers)


def _peermem(state: State) -> None:
    state.files["/proc/modules"] = (
        "nvidia_peermem 20480 0 - Live 0x0\nnvidia 14454784 13 - Live 0x0\n"
    )


def _old_iproute(state: State) -> None:
    state.iproute_old = True


def _power_line(state: State) -> None:
    state.dmesg.append(
        "mlx5_core 0000:01:00.0: Detected insufficient power on the PCIe slot (27W)."
    )


def _aer(state: State) -> None:
    state.dmesg.append(
        "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0"
    )
    state.dmesg.append("mlx5_core 0000:01:00.0: mlx5_pci_slot_reset Device state = 2")


def _wifi(state: State) -> None:
    state.wifi_up = True


def _two_cables(state: State) -> None:
    for number, rail in enumerate(list(state.rails)):
        other = replace(
            rail,
            interface=rail.interface.replace("f0np0", "f1np1"),
            hca=rail.hca.replace("f0", "f1"),
            pci=rail.pci.replace(".0", ".1"),
            mac=rail.mac[:-2] + f"0{number + 3}",
            peer_mac=rail.peer_mac[:-2] + f"0{number + 3}",
            address=rail.address.replace(f".77.{number + 1}.", f".77.{number + 3}."),
            port_name="p1",
        )
        state.rails.append(other)


FABRIC = {
    "link_13g": Fault("200G link delivers 13 Gb/s", 10, "rail_bandwidth", _slow),
    "link_61g": Fault("one rail at 61 Gb/s, counters clean", 11, "rail_bandwidth", _weak),
    "foreign_netplan": Fault(
        "another netplan file claims a rail (NVIDIA Sync)", 12, "rails_owned_once", _sync
    ),
    "gid_moved": Fault(
        "the GID moved to another index after the deploy", 12, "gid_stable", _gid_moved
    ),
    "aer_fatal": Fault("ConnectX-7 fatal AER", 13, "pcie_errors", _aer),
    "ufw_blocks": Fault("ufw on, the peer's address not allowed", 29, "firewall_peers", _ufw),
    "wifi_up": Fault("MT7925 Wi-Fi is up", 46, "wifi_off", _wifi),
    "mtu_1500": Fault("the link still has MTU 1500", 49, "link_mtu", _mtu),
    "active_mtu_1024": Fault("the HCA's active MTU is 1024", 49, "hca_mtu", _active_mtu),
    "jumbo_dropped": Fault("8972-byte pings do not pass", 49, "jumbo_ping", _jumbo),
    "one_subnet": Fault("both rails also in one subnet", 50, "subnets_distinct", _subnet),
    "two_cages": Fault("the two rails lie in two cages", 50, "rails_one_cage", _two_cages),
    "other_port": Fault("this node's cable is in the other cage", 50, "same_port", _other_port),
    "cx7_missing": Fault("no ConnectX-7 on the bus (uncabled)", 51, "cx7_present", _no_cx7),
    "carrier_lost": Fault("no carrier on rail 2", 51, "link_carrier", _carrier),
    "peermem_loaded": Fault("nvidia-peermem is loaded", 52, "no_peermem", _peermem),
    "default_route": Fault("a default route over a rail", 58, "no_default_route", _default_route),
    "firmware_differs": Fault(
        "one node's ConnectX-7 firmware is older", 59, "firmware_equal", _firmware
    ),
    "cables_crossed": Fault("rail 1 ends at the peer's rail 2", 60, "reciprocal", _crossed),
    "link_100g": Fault("the link trained at 100G", 63, "link_speed", _speed),
    "hca_down": Fault("the HCA's port is down", 63, "hca_active", _hca_down),
    "hca_unmapped": Fault("a rail has no HCA", 63, "hca_mapped", _unmapped),
    "cable_errors": Fault("the cable's bit error rate is high", 63, "link_errors", _errors),
    "address_lost": Fault("rail 2 lost its address", 64, "rail_addresses", _address),
    "gid_gone": Fault("no RoCEv2 GID for the rail's address", 64, "gid_present", _gid_gone),
    # healthy in another shape
    "iproute2_old": Fault("iproute2 6.1.0 leaves `dev` out", 43, "", _old_iproute),
    "power_line": Fault("27 W line on a healthy link", 10, "", _power_line),
    "two_cables": Fault("two cables, four rails", 50, "", _two_cables),
    "ufw_allows_peer": Fault("ufw on, the peer allowed wholesale", 29, "", _ufw_open),
}
