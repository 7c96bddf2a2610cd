"""Playing the project's playbooks on a lab, as `./run up` does."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lab.nodes import Lab

PLAY_LIMIT_S: Final = 1800  # an engine's installation, on a machine that is busy
ROOT: Final = Path(__file__).resolve().parents[2]
_RECAP: Final = re.compile(
    r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Recap:
    """What Ansible says of one node at the end.

    Attributes:
        ok: Tasks that held or were made to hold.
        changed: Tasks that changed something.
        failed: Tasks that failed, with an unreachable node counted as one.
    """

    ok: int
    changed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Played:
    """One run of a playbook.

    Attributes:
        status: Exit status of ansible-playbook.
        text: All that it printed.
        nodes: Recap by node.
    """

    status: int
    text: str
    nodes: dict[str, Recap]


def words(lab: Lab, playbook: str, *options: str) -> list[str]:
    """The lab's command that plays a playbook of the project in the controller's namespace."""
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "TWINSPARK_LAB_STATE": os.environ.get("TWINSPARK_LAB_STATE", "/var/tmp/twinspark-lab"),  # noqa: S108 - the lab's own default
        **lab.settings,
    }
    environment["ANSIBLE_SSH_CONTROL_PATH_DIR"] = environment["TWINSPARK_LAB_STATE"] + "/cp"
    return [
        "ctl",
        "env",
        *(f"{name}={value}" for name, value in environment.items()),
        str(Path(sys.prefix) / "bin" / "ansible-playbook"),
        "-i",
        str(ROOT / "env" / "lab.yml"),
        str(ROOT / playbook),
        *options,
    ]


def play(lab: Lab, playbook: str, *options: str) -> Played:
    """Play a playbook of the project on a lab and wait for its end."""
    done = lab(*words(lab, playbook, *options), check=False, limit_s=PLAY_LIMIT_S)
    recap = {
        name: Recap(int(ok), int(changed), int(unreachable) + int(failed))
        for name, ok, changed, unreachable, failed in _RECAP.findall(done.stdout)
    }
    return Played(done.returncode, done.stdout + done.stderr, recap)
