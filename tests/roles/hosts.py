"""The lab's nodes for testinfra, which has no backend for `lab exec`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

if TYPE_CHECKING:
    from lab.nodes import Node


class LabBackend(BaseBackend):
    """Commands run on a node as root, inside it and without ssh."""

    NAME = "lab"

    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self.node = node

    def run(self, command: str, *args: str, **_: Any) -> CommandResult:
        """Run a line of shell, as every testinfra backend does."""
        line = self.get_command(command, *args)
        done = self.node.run("sh", "-c", line, check=False)
        return self.result(done.returncode, line.encode(), done.stdout, done.stderr)


def testinfra(node: Node) -> Host:
    """A node as testinfra sees it."""
    backend = LabBackend(node)
    host = Host(backend)
    backend.set_host(host)
    return host


def owned(host: Host, path: str, mode: int, owner: str = "root", group: str | None = None) -> str:
    """Hold type, mode and owner of a file or folder; return the text of a file."""
    there = host.file(path)
    assert there.exists, path
    assert (oct(there.mode), there.user, there.group) == (oct(mode), owner, group or owner), path
    return there.content_string if there.is_file else ""


def as_json(host: Host, command: str) -> Any:
    """What a program that succeeds prints, read as JSON."""
    return json.loads(host.check_output(command))
