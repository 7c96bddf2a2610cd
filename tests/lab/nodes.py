"""The lab and its nodes, as tests drive them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT: Final = Path(__file__).with_name("lab")
NAMES: Final = ("spark1", "spark2")
BOOT_ID: Final = ("cat", "/proc/sys/kernel/random/boot_id")  # another one after every boot
RAILS: Final = ("enp1s0f0np0", "enP2p1s0f0np0")

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Lab:
    """One lab; a call is one of the lab script's commands.

    Attributes:
        settings: TWINSPARK_LAB_* variables that distinguish it from the default lab.
    """

    settings: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, *words: str, check: bool = True, stdin: str = "", limit_s: float = 600
    ) -> Result:
        """Run a command to its end, `limit_s` seconds at most.

        Raises:
            AssertionError: It failed and `check` is set; what it said is the message.
        """
        done = subprocess.run(
            [SCRIPT, *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            env={**os.environ, **self.settings},
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def node(self, name: str) -> Node:
        """One of its nodes."""
        return Node(self, name)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a lab."""

    lab: Lab
    name: str

    def run(self, *words: str, check: bool = True, stdin: str = "", limit_s: float = 600) -> Result:
        """Run a program on the node as root, without ssh."""
        return self.lab("exec", self.name, *words, check=check, stdin=stdin, limit_s=limit_s)

    def text(self, *words: str) -> str:
        """What a program that succeeds prints, without the last line's end."""
        return self.run(*words).stdout.rstrip("\n")

    def carries(self, rail: int) -> bool:
        """Whether the node sees a carrier on rail 1 or 2."""
        return self.text("cat", f"/sys/class/net/{RAILS[rail - 1]}/carrier") == "1"
