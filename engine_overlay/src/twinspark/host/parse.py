"""Read the programs' output: parsers take text, give frozen records and run nothing.

A text in which a parser must find something and does not is a ValueError: empty is no good news.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of nvidia-smi; figures that GB10 does not give ("[N/A]") stay text."""

    name: str
    driver: str
    compute_capability: str
    sm_mhz: int | None
    memory: str


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package and its dpkg selection."""

    name: str
    version: str
    want: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One systemd unit."""

    name: str
    load: str
    active: str
    enabled: str


@dataclass(frozen=True, slots=True)
class Link:
    """One network interface."""

    name: str
    up: bool
    carrier: bool
    mtu: int
    mac: str
    addresses: tuple[str, ...]  # IPv4 with prefix length


@dataclass(frozen=True, slots=True)
class Hca:
    """One HCA's first port."""

    name: str
    state: str
    active_mtu: int
    firmware: str


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry of a port's GID table."""

    index: int
    address: str  # IPv4, or "" for another kind
    kind: str
    netdev: str


def amount(text: str) -> float:
    """Return a number of 0 or more, as argparse asks for it.

    Raises:
        ValueError: It is none, or not finite.
    """
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def number(text: str) -> int | None:
    """Return the first whole number in `text`."""
    found = re.search(r"-?\d+", text)
    return int(found.group()) if found else None


def gpus(text: str) -> tuple[Gpu, ...]:
    """Parse the CSV of the query in `record`, whose columns stand there."""
    rows = [
        [word.strip() for word in line.split(",")]
        for line in text.splitlines()
        if line.count(",") >= 8
    ]
    return tuple(Gpu(row[0], row[1], row[3], number(row[5]), row[8]) for row in rows)


def versions(text: str) -> dict[str, str]:
    """Parse `nvidia-smi --version` to name -> version ("nvidia-smi", "driver", "cuda").

    Raises:
        ValueError: It does not name the user space and the driver.
    """
    pairs = [line.split(":", 1) for line in text.splitlines() if ":" in line]
    found = {
        key.strip().lower().removesuffix("version").strip(): value.strip() for key, value in pairs
    }
    if not {"nvidia-smi", "driver"} <= found.keys():
        raise ValueError(f"no versions in {text[:80]!r}")
    return found


def packages(text: str) -> tuple[Package, ...]:
    """Parse `record`'s dpkg-query lines; what is not installed is left out."""
    rows = [line.split("\t") for line in text.splitlines()]
    return tuple(
        Package(row[0], row[1], row[2]) for row in rows if len(row) == 4 and row[3] == "installed"
    )


def candidates(text: str) -> dict[str, tuple[str, str]]:
    """Parse `apt-cache policy` to name -> (installed, candidate).

    Raises:
        ValueError: It lists no package.
    """
    found: dict[str, tuple[str, str]] = {}
    for block in re.split(r"\n(?=\S)", text):
        name = block.split(":", 1)[0].strip()
        pair = [
            re.search(rf"^\s+{word}:\s*(\S+)", block, re.MULTILINE)
            for word in ("Installed", "Candidate")
        ]
        if pair[0] and pair[1]:
            found[name] = (pair[0].group(1), pair[1].group(1))
    if not found:
        raise ValueError(f"no package in {text[:80]!r}")
    return found


def units(text: str) -> dict[str, Unit]:
    """Parse `systemctl show -p Id,LoadState,ActiveState,UnitFileState`.

    Raises:
        ValueError: It lists no unit; one that does not exist is listed too.
    """
    found: dict[str, Unit] = {}
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("Id"):
            found[values["Id"]] = Unit(
                values["Id"],
                values.get("LoadState", ""),
                values.get("ActiveState", ""),
                values.get("UnitFileState", ""),
            )
    if not found:
        raise ValueError(f"no unit in {text[:80]!r}")
    return found


def _rows(text: str) -> list[dict[str, Any]]:
    """Return the objects of an iproute2 JSON array (it also prints empty ones).

    Raises:
        ValueError: It is none.
    """
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError(f"no list: {text[:80]!r}")  # noqa: TRY004 (of the text, not of the call)
    return [one for one in value if isinstance(one, dict) and one]


def links(text: str) -> dict[str, Link]:
    """Parse `ip -j addr`; older iproute2 puts the address in `from`, newer in `local`.

    Raises:
        ValueError: It is no list, or an address is none.
    """
    found: dict[str, Link] = {}
    for row in _rows(text):
        addresses = [
            str(
                ipaddress.ip_interface(
                    f"{one.get('local', one.get('from'))}/{one.get('prefixlen', 32)}"
                )
            )
            for one in row.get("addr_info", [])
            if one.get("family") == "inet"
        ]
        flags = row.get("flags", [])
        name = str(row.get("ifname", ""))
        found[name] = Link(
            name,
            "UP" in flags,
            "LOWER_UP" in flags,
            int(row.get("mtu", 0)),
            str(row.get("address", "")),
            tuple(addresses),
        )
    return found


def default_routes(text: str) -> tuple[str, ...]:
    """Parse `ip -j route` to the interfaces of default routes."""
    return tuple(str(row.get("dev", "")) for row in _rows(text) if row.get("dst") == "default")


def neighbours(text: str) -> dict[str, str]:
    """Parse `ip -j neigh` to address -> MAC; `dev` is not needed, as iproute2 6.1.0 may omit it."""
    return {
        str(row["dst"]): str(row["lladdr"])
        for row in _rows(text)
        if "dst" in row and "lladdr" in row
    }


def hcas(text: str) -> dict[str, Hca]:
    """Parse `ibv_devinfo -v`."""
    found: dict[str, Hca] = {}
    for block in re.split(r"(?m)^(?=hca_id:)", text):
        head = re.match(r"hca_id:\s*(\S+)", block)
        if head:
            value = {
                key: re.search(rf"\b{key}:\s+(\S+)", block)
                for key in ("state", "active_mtu", "fw_ver")
            }
            state, mtu, firmware = ((one.group(1) if one else "") for one in value.values())
            found[head.group(1)] = Hca(head.group(1), state, number(mtu) or 0, firmware)
    return found


def hca_of_interface(text: str) -> dict[str, str]:
    """Parse `ibdev2netdev` to interface -> HCA."""
    return {found[1]: found[0] for found in re.findall(r"(?m)^(\S+) port \d+ ==> (\S+)", text)}


def gid_tables(files: dict[str, str]) -> dict[str, tuple[Gid, ...]]:
    """Read the GID tables from sysfs texts: HCA -> entries that are in use."""
    tables: dict[str, list[Gid]] = {}
    for path, text in files.items():
        found = re.fullmatch(r"/sys/class/infiniband/([^/]+)/ports/1/gids/(\d+)", path)
        raw = text.strip().replace(":", "")
        if found and raw.strip("0"):
            base = f"/sys/class/infiniband/{found[1]}/ports/1/gid_attrs"
            mapped = raw.startswith("0" * 20 + "ffff") and len(raw) == 32
            address = (
                ".".join(str(int(raw[at : at + 2], 16)) for at in range(24, 32, 2))
                if mapped
                else ""
            )
            kind, netdev = (
                files.get(f"{base}/{name}/{found[2]}", "").strip() for name in ("types", "ndevs")
            )
            tables.setdefault(found[1], []).append(Gid(int(found[2]), address, kind, netdev))
    return {name: tuple(sorted(table, key=lambda one: one.index)) for name, table in tables.items()}


def environment(text: str) -> dict[str, str]:
    """Parse KEY=VALUE lines; single quotes round a value are dropped."""
    pairs = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    return {key: value.strip("'") for key, value in pairs}


def bandwidth(text: str) -> float | None:
    """Parse the last table row of ib_write_bw --report_gbits to the average in Gb/s."""
    rows = re.findall(r"(?m)^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", text)
    return float(rows[-1]) if rows else None


def bit_error_rate(text: str) -> float:
    """Parse mlxlink's JSON to the effective physical bit error rate ("15E-255" is none at all).

    Raises:
        ValueError: It gives none.
    """
    found = re.search(r'"Effective Physical BER"\s*:\s*"([\dEe.+-]+)"', text)
    if found is None:
        raise ValueError(f"no bit error rate in {text[:80]!r}")
    return float(found.group(1))


def sort_key(version: str) -> tuple[int, ...]:
    """Return a version's numbers for comparison: "2.29.3" -> (2, 29, 3)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
