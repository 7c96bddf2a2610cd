"""What a node should look like: the pins and choices that the roles hand over."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class RailWish:
    """One rail as the inventory has it."""

    interface: str
    address: str  # with its prefix length
    hca: str = ""
    peer: str = ""  # the other node's address on this rail


@dataclass(frozen=True, slots=True)
class Expect:
    """Expected state of one node. None or empty: no opinion, the check says so and passes.

    Units: MTU in bytes, speeds in Gb/s (as the tools print them), memory in GiB, clocks in MHz.
    """

    driver: str = ""
    kernels: tuple[str, ...] = ()
    kho_kernels: tuple[str, ...] = ()  # of `kernels`, those that need kho=off
    updaters: tuple[str, ...] = ()
    clock_unit: str = ""
    clock_cap_mhz: int = 0
    rails: tuple[RailWish, ...] = ()
    peers: tuple[str, ...] = ()  # the other node's rail addresses, in the order of `rails`
    mtu: int = 9000
    hca_mtu: int = 4096
    link_gbps: float | None = None
    rail_gbps_floor: float | None = None
    swappiness: int | None = None
    memory_free_gib: float | None = None
    cuda: str = ""
    cuda_home: str = ""
    gpu_engine: bool = True  # the engine uses a GPU, so its environment must carry the toolchain
    nccl_at_least: str = "2.29.3"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Expect:
        """Read what Ansible hands over.

        Raises:
            ValueError: A key is unknown: a misspelt expectation would pass in silence.
        """
        known = {one.name for one in fields(cls)}
        unknown = sorted(value.keys() - known)
        if unknown:
            raise ValueError(
                f"unknown expectation {', '.join(unknown)}; known: {', '.join(sorted(known))}"
            )
        made: dict[str, Any] = {
            name: tuple(given) if isinstance(given, list) else given
            for name, given in value.items()
        }
        made["peers"] = tuple(str(one).split("/")[0] for one in value.get("peers", ()))
        padded = [*made["peers"], *[""] * len(value.get("rails", ()))]
        made["rails"] = tuple(
            RailWish(str(one["interface"]), str(one["address"]), str(one.get("hca") or ""), peer)
            for one, peer in zip(value.get("rails", ()), padded, strict=False)
        )
        return cls(**made)
