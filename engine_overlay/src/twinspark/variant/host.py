"""What a variant must know of one node: its rank, its addresses and its rails."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinspark.variant.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # IFNAMSIZ - 1


@dataclass(frozen=True, slots=True)
class Rail:
    """One function of the fast link.

    Attributes:
        interface: Its network interface.
        address: Its address with prefix length, `10.77.1.11/24`.
        hca: Its RDMA device (`rocep1s0f0`), where the inventory names it.
    """

    interface: str
    address: str
    hca: str | None = None

    @property
    def ip(self) -> str:
        """The address without its prefix length."""
        return self.address.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Host:
    """One node of the group that serves together.

    Attributes:
        name: Its name in the inventory.
        rank: 0 is the head, with the API; the others are headless workers.
        nnodes: Nodes in the group.
        management_address: Where the API listens.
        master_address: The head's address on the first rail.
        rails: Its rails, the first carries the rendezvous.
        gid_index: GID to use on a single HCA; with two, NCCL finds each by itself.
    """

    name: str
    rank: int
    nnodes: int
    management_address: str
    master_address: str
    rails: tuple[Rail, ...]
    gid_index: int | None = None

    @property
    def is_head(self) -> bool:
        """Whether this node has the API."""
        return self.rank == 0

    @property
    def hcas(self) -> tuple[str, ...]:
        """The RDMA devices of its rails, where all are named."""
        named = tuple(rail.hca for rail in self.rails if rail.hca)
        return named if len(named) == len(self.rails) else ()


def hosts(hostvars: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Host]:
    """The nodes of one group, checked against each other.

    Args:
        hostvars: Variables of each host: `ansible_host`, `twinspark_rank`, `twinspark_rails`,
            `twinspark_gid_index`.
        names: The group's hosts.

    Returns:
        Host by name, in the order of ranks.

    Raises:
        HostError: A variable is missing or malformed, or two nodes share a rank or an address.
    """
    raw = {name: _variables(name, hostvars) for name in names}
    _distinct("twinspark_rank", {name: str(values["rank"]) for name, values in raw.items()})
    _distinct("ansible_host", {name: values["address"] for name, values in raw.items()})
    for number in range(max((len(values["rails"]) for values in raw.values()), default=0)):
        _distinct(
            f"twinspark_rails[{number}].address",
            {name: _rail(name, values, number).ip for name, values in raw.items()},
        )
        _one_subnet(number, {name: _rail(name, values, number) for name, values in raw.items()})
    ranks = sorted(values["rank"] for values in raw.values())
    if ranks != list(range(len(names))):
        raise HostError(
            f"twinspark_rank must be 0 to {len(names) - 1}, one each; the inventory has {ranks}"
        )
    ordered = sorted(raw.items(), key=lambda item: item[1]["rank"])
    master = ordered[0][1]["rails"][0].ip
    return {
        name: Host(
            name,
            values["rank"],
            len(names),
            values["address"],
            master,
            values["rails"],
            values["gid_index"],
        )
        for name, values in ordered
    }


def _variables(name: str, hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if name not in hostvars:
        raise HostError(
            f"{name} is not in the inventory: name one of {', '.join(sorted(hostvars))}"
        )
    own = hostvars[name]
    rails = own.get("twinspark_rails")
    if not isinstance(rails, list) or not rails:
        raise HostError(
            f"{name}: twinspark_rails is missing: list the fast link's interfaces and addresses"
        )
    rank = own.get("twinspark_rank")
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise HostError(
            f"{name}: twinspark_rank is {rank!r}: write 0 for the head and 1 for the worker"
        )
    gid_index = own.get("twinspark_gid_index")
    parsed = tuple(_parse_rail(name, number, rail) for number, rail in enumerate(rails))
    _own_subnets(name, parsed)
    if len({rail.hca is None for rail in parsed}) > 1:
        raise HostError(
            f"{name}: only some of twinspark_rails name their hca: name it on every rail or on "
            "none; NCCL would otherwise take any device of this node"
        )
    return {
        "rank": rank,
        "address": _checked(name, "ansible_host", own.get("ansible_host"), ipaddress.ip_address),
        "rails": parsed,
        "gid_index": None if gid_index is None else int(gid_index),
    }


def _parse_rail(name: str, number: int, rail: Mapping[str, Any]) -> Rail:
    where = f"twinspark_rails[{number}]"
    unknown = sorted(set(rail) - {"interface", "address", "hca"})
    if unknown:
        raise HostError(
            f"{name}: {where} has {', '.join(unknown)}: a rail has interface, address and hca"
        )
    address = _checked(name, f"{where}.address", rail.get("address"), ipaddress.ip_interface)
    if "/" not in address:
        raise HostError(
            f"{name}: {where}.address is {address}: write it with its prefix length, as "
            f"{address}/24"
        )
    interface = str(rail.get("interface") or "")
    if not _INTERFACE.fullmatch(interface):
        raise HostError(
            f"{name}: {where}.interface is {interface!r}: write the network interface's name, as "
            "`ip link` shows it"
        )
    hca = rail.get("hca")
    return Rail(interface, address, None if hca is None else str(hca))


def _checked(name: str, what: str, value: object, parse: Callable[[str], object]) -> str:
    try:
        parse(str(value))
    except ValueError as error:
        raise HostError(
            f"{name}: {what} is {value!r}, not an address: write one as 10.77.1.11"
        ) from error
    return str(value)


def _rail(name: str, values: dict[str, Any], number: int) -> Rail:
    rails: tuple[Rail, ...] = values["rails"]
    if number >= len(rails):
        raise HostError(
            f"{name} has {len(rails)} rails and another node has more: both need the same number"
        )
    return rails[number]


def _distinct(what: str, values: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for name, value in values.items():
        if value in seen:
            raise HostError(
                f"{seen[value]} and {name} have the same {what}, {value}: give each node its own; "
                "with one for both the engines "
                "wait for each other without an error"
            )
        seen[value] = name


def _own_subnets(name: str, rails: tuple[Rail, ...]) -> None:
    networks = [str(ipaddress.ip_interface(rail.address).network) for rail in rails]
    if len(set(networks)) < len(networks):
        raise HostError(
            f"{name}: two of twinspark_rails are in one subnet ({', '.join(networks)}), and the "
            "kernel would send both over the first: give each rail a subnet of its own"
        )


def _one_subnet(number: int, rails: dict[str, Rail]) -> None:
    networks = {str(ipaddress.ip_interface(rail.address).network) for rail in rails.values()}
    if len(networks) > 1:
        raise HostError(
            f"twinspark_rails[{number}] is not one subnet over {', '.join(rails)}: "
            f"{', '.join(sorted(networks))}; "
            "list the rails in the same order on both nodes"
        )
