"""Print, as JSON, what this node is made of. Runs on the node as root, on its own Python, alone.

A file is told by type, mode, owner and content, not by its time.
"""
# ruff: noqa: S108, PTH115, PTH118 - folders to leave out; a walk over a whole system counts its calls

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
from pathlib import Path

# In memory, written by the system itself at any time, or shown to the nodes by their machine.
VOLATILE = {
    "/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/log", "/var/lib/apt",
    "/var/cache/apt", "/var/lib/systemd", "/var/lib/dpkg", "/var/cache/ldconfig",
    "/var/cache/debconf", "/var/lib/sudo", "/root/.ansible", "/root/.ansible_async",
    "/home/deploy/.ansible",
    "/srv/wheelhouse", "/srv/lab-model", "/opt/twinspark-fakes", "/etc/ld.so.cache",
    "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock",
    "/etc/resolv.conf", "/home/deploy/.sudo_as_admin_successful",
}  # fmt: skip
# whoever looks at the node over ssh
LOGIN = re.compile(r"session-.*\.scope|user@\d+\.service|user-runtime-dir@\d+\.service")


def told(path: str) -> list[object]:
    """Mode with type, owner, group, and the link's target or the content's digest."""
    info = os.lstat(path)
    said: list[object] = [oct(info.st_mode), info.st_uid, info.st_gid]
    if stat.S_ISLNK(info.st_mode):
        said.append(os.readlink(path))
    elif stat.S_ISREG(info.st_mode):
        said.append(hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16])
    return said


def files() -> dict[str, list[object]]:
    """Every path that is not volatile."""
    found = {}
    for top, folders, names in os.walk("/"):
        kept = [one for one in folders if one != "__pycache__"]
        folders[:] = [one for one in kept if os.path.join(top, one) not in VOLATILE]
        for name in folders + names:
            path = os.path.join(top, name)
            if path not in VOLATILE:
                found[path] = told(path)
    return found


def packaged() -> list[str]:
    """Every path that a package owns."""
    owned: set[str] = set()
    for path in Path("/var/lib/dpkg/info").iterdir():
        if path.suffix in {".list", ".conffiles"}:
            owned.update(path.read_text(encoding="utf-8").splitlines())
    # /bin and its like are links into /usr, and some packages still name the old place
    old = ("/bin/", "/sbin/", "/lib/", "/lib64/")
    return sorted(owned | {f"/usr{path}" for path in owned if path.startswith(old)})


def table(*words: str, value: int = 1) -> dict[str, str]:
    """The first column of a program's output -> another."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    kept = [row for row in rows if len(row) > value and not LOGIN.match(row[0])]
    return {row[0]: row[value] for row in kept}


def named(path: str) -> dict[str, str]:
    """The lines of /etc/passwd or /etc/group by name."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {line.split(":")[0]: line for line in lines}


def links() -> dict[str, list[object]]:
    """MTU, whether it is up, and IPv4 addresses of every interface."""
    done = subprocess.run(["ip", "-j", "addr"], capture_output=True, text=True, check=True)
    return {
        row["ifname"]: [
            row["mtu"],
            "UP" in row["flags"],
            sorted(one["local"] for one in row["addr_info"] if one["family"] == "inet"),
        ]
        for row in json.loads(done.stdout)
        if row
    }


def main() -> None:
    """Print everything."""
    plain = ("--no-legend", "--plain")
    kinds = "--type=service,socket,timer"
    alive = "--state=running,listening,waiting"
    print(
        json.dumps(
            {
                "files": files(),
                "packaged": packaged(),
                "units": table("systemctl", "list-unit-files", *plain),
                "running": table("systemctl", "list-units", kinds, alive, *plain, value=3),
                "users": named("/etc/passwd"),
                "groups": named("/etc/group"),
                "packages": table("dpkg-query", "-W", "-f", "${Package} ${Version}\n"),
                "selections": table("dpkg", "--get-selections"),
                "links": links(),
            }
        )
    )


if __name__ == "__main__":
    main()
