"""Record what a node says about itself: commands' output and files' text, read-only.

This file is self-contained on purpose: Ansible feeds it to the node's `python3 -`, so that a bare
node,
on which nothing of the project is installed, can be asked, in check mode too. Nothing here judges.

Secrets: of files that may hold any (netplan, the engine's environment) only named lines are kept.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = "twinspark.host/1"
SECONDS = 30.0


class Command(NamedTuple):
    """A program to run. `{packages}`, `{units}` and `{rail}` in its words are filled in."""

    id: str
    group: str
    argv: tuple[str, ...]


class File(NamedTuple):
    """Files to read; `keep`: lines that match; `how`: text, name (exists) or link (its target)."""

    group: str
    pattern: str
    how: str = "text"
    keep: str = ""


_SMI = (
    "name,driver_version,vbios_version,compute_cap,pstate,clocks.sm,clocks.max.sm,power.draw"
    ",memory.total"
)
_NET = r"^\s*(e[nt]\w+|wl\w+|dhcp4|addresses|mtu|renderer)\s*:|^\s*-\s*[\"']?\d+\.\d+\.\d+\.\d+/\d+"
# names of settings that are judged; an API key is none of them
_ENV = (
    r"^(TWINSPARK_|NCCL_|GLOO_|TP_SOCKET|VLLM_HOST_IP|VLLM_ENABLE_STARTUP_PLAN|TRITON_|CUDA_HOME"
    r"|PATH=|TORCH_CUDA_ARCH_LIST|FLASHINFER_|CUTE_|DG_JIT|PYTORCH_|HF_HUB_|TILELANG_"
    r"|TRANSFORMERS_OFFLINE|VLLM_CACHE_ROOT|VLLM_SPARSE|VLLM_EXECUTE)"
)
_SITE = "/opt/twinspark/releases/*/venv/lib/python3*/site-packages"
_LOG = (
    r"_memdescAlloc|NV_ERR_NO_MEMORY|NVRM: "
    "Xid|mlx5_pci_slot_reset|AER:.*(Fatal|fatal)|insufficient power"
    r"|ibv_reg_mr|mt7925.*(Oops|BUG)|Out of memory: Killed"
)

COMMANDS = (
    Command("smi", "driver", ("nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader")),
    Command("smi_version", "driver", ("nvidia-smi", "--version")),
    Command("uname", "driver", ("uname", "-r")),
    Command(
        "packages",
        "driver",
        (
            "dpkg-query",
            "-W",
            "-f=${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n",
            "{patterns}",
        ),
    ),
    Command("policy", "driver", ("apt-cache", "policy", "{packages}")),
    Command("ota", "driver", ("nvidia-spark-ota-check", "torn-score")),
    Command(
        "units",
        "units",
        ("systemctl", "show", "-p", "Id,LoadState,ActiveState,UnitFileState", "{units}"),
    ),
    Command("bios", "driver", ("dmidecode", "-s", "bios-version")),
    Command("product", "driver", ("dmidecode", "-s", "system-product-name")),
    Command("addr", "fabric", ("ip", "-j", "-d", "addr", "show")),
    Command("route", "fabric", ("ip", "-j", "route", "show")),
    Command("lspci", "fabric", ("lspci", "-D", "-d", "15b3:")),
    Command("hca", "fabric", ("ibv_devinfo", "-v")),
    Command("hcamap", "fabric", ("ibdev2netdev",)),
    Command("ethtool:{rail}", "fabric", ("ethtool", "{rail}")),
    Command("firmware:{rail}", "fabric", ("ethtool", "-i", "{rail}")),
    Command("mlxlink:{rail}", "fabric", ("mlxlink", "-d", "{pci}", "-c", "--json")),
    Command(
        "ping:{rail}",
        "fabric_ping",
        (
            "ping",
            "-4",
            "-n",
            "-q",
            "-c",
            "2",
            "-W",
            "2",
            "-M",
            "do",
            "-s",
            "{payload}",
            "-I",
            "{rail}",
            "{peer}",
        ),
    ),
    Command("neigh", "fabric_ping", ("ip", "-j", "-4", "neigh", "show")),
    Command("dmesg", "log", ("dmesg",)),
)

FILES = (
    File("driver", "/proc/cmdline"),
    File("driver", "/boot/vmlinuz-*", "name"),
    File("driver", "/lib/modules/*/kernel/nvidia*/nvidia.ko*", "name"),
    File("driver", "/lib/modules/*/updates/dkms/nvidia.ko*", "name"),
    File("driver", "/etc/default/grub", keep=r"^GRUB_DEFAULT="),
    File("driver", "/etc/default/grub.d/*.cfg", keep=r"^GRUB_DEFAULT="),
    File("driver", "/proc/modules", keep=r"^(nvidia|mlx5|mt7925)"),
    File("fabric", "/etc/netplan/*.yaml", keep=_NET),
    File("fabric", "/sys/class/net/*/phys_port_name"),
    File("fabric", "/sys/class/infiniband/*/ports/1/gids/*"),
    File("fabric", "/sys/class/infiniband/*/ports/1/gid_attrs/types/*"),
    File("fabric", "/sys/class/infiniband/*/ports/1/gid_attrs/ndevs/*"),
    File("fabric", "/etc/ufw/ufw.conf", keep=r"^ENABLED="),
    File("fabric", "/etc/ufw/user.rules", keep=r"^### tuple ###"),
    File("fabric", "/etc/twinspark/fabric.json"),
    File("clock", "/run/twinspark-clock.json"),
    File("host", "/proc/meminfo"),
    File("host", "/proc/sys/vm/swappiness"),
    File("host", "/proc/sys/vm/min_free_kbytes"),
    File("host", "/proc/swaps"),
    File("host", "/etc/systemd/system/vllm-deepseek-mxfp4@.service", keep=r"^(Limit|Environment)"),
    File("host", "/etc/default/earlyoom", keep=r"^EARLYOOM_ARGS="),
    File("host", "/etc/twinspark/earlyoom.env", keep=r"^EARLYOOM_ARGS="),
    File("host", "/usr/include/python3*/Python.h", "name"),
    File("host", "/etc/ssh/ssh_host_*_key.pub"),
    File("host", "/etc/hosts", keep=r"^127\."),
    File("host", "/proc/[0-9]*/status", keep=r"^(Name:\s+(polkitd|rsyslogd|tracker\S*)$|VmRSS:)"),
    File("toolchain", "/usr/local/cuda", "link"),
    File("toolchain", "/usr/local/cuda-*/bin/nvcc", "name"),
    File("toolchain", "/usr/local/cuda-*/bin/ptxas", "name"),
    File("toolchain", "/opt/twinspark/cuda/*/probe.json"),
    File("host", "/usr/bin/ninja", "name"),
    File("engine", "/opt/twinspark/current/etc/*/engine.env", keep=_ENV),
    File("engine", "/opt/twinspark/current/etc/*/node.env", keep=_ENV),
    File("engine", "/proc/[0-9]*/maps", keep=r"libnccl"),
    File("engine", f"{_SITE}/nvidia_nccl_cu*-*.dist-info/METADATA", "name"),
)


def run_command(argv: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run one program; a missing one is rc 127, one that hangs is rc 124, as a shell would say."""
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            errors="replace",
        )
    except FileNotFoundError:
        return {"argv": argv, "rc": 127, "out": "", "err": f"{argv[0]}: not found"}
    except subprocess.TimeoutExpired:
        return {
            "argv": argv,
            "rc": 124,
            "out": "",
            "err": f"{argv[0]}: no answer in {SECONDS:.0f} s",
        }
    except OSError as error:
        return {"argv": argv, "rc": 126, "out": "", "err": f"{argv[0]}: {error.strerror}"}
    return {"argv": argv, "rc": done.returncode, "out": done.stdout, "err": done.stderr[-2000:]}


def fill(argv: tuple[str, ...], words: dict[str, list[str]]) -> list[str] | None:
    """Put the placeholders' words in; None when there are none for one: nothing to ask."""
    filled: list[str] = []
    for word in argv:
        name = word[1:-1] if word.startswith("{") else ""
        if not name:
            filled.append(word)
        elif words.get(name):
            filled.extend(words[name])
        else:
            return None
    return filled


def rails(expect: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rails, each with the peer's address on it where that is known."""
    peers = [str(one).split("/")[0] for one in expect.get("peers", [])]
    given = expect.get("rails", [])
    return [
        {**rail, "peer": peer} for rail, peer in zip(given, peers + [""] * len(given), strict=False)
    ]


def run_commands(
    groups: set[str], wish: dict[str, Any], environment: dict[str, str]
) -> dict[str, Any]:
    """Run the commands of the groups, those about a rail once a rail."""
    words = {"patterns": list(wish.get("packages", [])), "units": list(wish.get("units", []))}
    answers: dict[str, Any] = {}
    for command in COMMANDS:
        if command.group not in groups:
            continue
        for rail in rails(wish.get("expect", {})) if "{rail}" in command.id else [{}]:
            words["pci"] = re.findall(
                r"bus-info:\s*(\S+)",
                answers.get(f"firmware:{rail.get('interface')}", {}).get("out", ""),
            )
            words["rail"] = [rail["interface"]] if rail else []
            words["peer"] = [rail["peer"]] if rail.get("peer") else []
            words["payload"] = [str(int(wish.get("expect", {}).get("mtu", 9000)) - 28)]
            argv = fill(command.argv, words)
            if argv:
                key = command.id.replace("{rail}", rail.get("interface", ""))
                answers[key] = run_command(argv, environment)
        if command.id == "packages" and "packages" in answers:
            lines = [line.split("\t") for line in answers["packages"]["out"].splitlines()]
            words["packages"] = [line[0] for line in lines if line[-1] == "installed"]
    if "dmesg" in answers:
        kept = [line for line in answers["dmesg"]["out"].splitlines() if re.search(_LOG, line)]
        answers["dmesg"]["out"] = "\n".join(kept[-400:])
    return answers


def read_file(wanted: File, place: str) -> str | None:
    """Return what is to be kept of one file, or None when it cannot be read."""
    if wanted.how == "name":
        return ""
    try:
        if wanted.how == "link":
            return str(Path(place).readlink())
        text = Path(place).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if wanted.keep:
        text = "\n".join(line for line in text.splitlines() if re.search(wanted.keep, line))
        return text or None
    return text


def read_files(groups: set[str], roots: list[str]) -> dict[str, str]:
    """Read the files of the groups below each root in turn; the first root that has a path wins."""
    texts: dict[str, str] = {}
    for wanted in FILES:
        if wanted.group not in groups:
            continue
        for root in roots:
            # glob, not Path.glob: the pattern is absolute, and the root is put before it as text
            for place in sorted(glob.glob(root + wanted.pattern)):  # noqa: PTH207
                path = place[len(root) :]
                text = None if path in texts else read_file(wanted, place)
                if text is not None:
                    texts[path] = text
    return texts


def record(wish: dict[str, Any]) -> dict[str, Any]:
    """Ask this node.

    Args:
        wish: `groups`; `expect` (as `twinspark.host.expect` has it); `units`; `packages`
            (patterns); `path` (PATH of the probes); `commands` (answers obtained elsewhere, put
            beside the others); `file_roots` (folders searched for files, in order; "" is the
            real root).
    """
    groups = set(wish.get("groups", []))
    environment = dict(
        os.environ, LC_ALL="C", PATH=str(wish.get("path") or os.environ.get("PATH", os.defpath))
    )
    commands = {**run_commands(groups, wish, environment), **wish.get("commands", {})}
    return {
        "schema": SCHEMA,
        "host": platform.node(),
        "time": int(time.time()),
        "groups": sorted(groups),
        "expect": wish.get("expect", {}),  # sent along, so that a recording can be judged by itself
        "commands": commands,
        "files": read_files(groups, list(wish.get("file_roots") or [""])),
    }


def main() -> int:
    """Print the recording that the JSON in the first argument asks for."""
    json.dump(record(json.loads(sys.argv[1])), sys.stdout, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
