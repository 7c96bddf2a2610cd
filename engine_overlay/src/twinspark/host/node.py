"""One node's recording, read: the only thing that checks look at."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinspark.host import parse
from twinspark.host.record import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinspark.host.expect import Expect


class RecordingError(ValueError):
    """A recording cannot be read."""


class NotAskedError(Exception):
    """A program or a file is not there: nothing can be said, and that is no fault."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's name, its recording and what is expected of it."""

    name: str
    commands: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, str]
    expect: Expect

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any], expect: Expect) -> Node:
        """Read a recording.

        Raises:
            RecordingError: It is none, or of another version.
        """
        if value.get("schema") != SCHEMA:
            raise RecordingError(f"{name}: no recording of schema {SCHEMA}: {str(value)[:80]!r}")
        return cls(name, value["commands"], value["files"], expect)

    def text(self, command: str) -> str:
        """Return what a command printed, standard error after it.

        Raises:
            NotAskedError: The command was not run, or there is no such program.
        """
        answer = self.commands.get(command)
        if answer is None or answer["rc"] == 127:
            raise NotAskedError(answer["err"].strip() if answer else f"{command} was not asked")
        return str(answer["out"]) + (str(answer["err"]) if answer["rc"] != 0 else "")

    def succeeded(self, command: str) -> bool:
        """Tell whether a command ended with 0."""
        answer = self.commands.get(command)
        return answer is not None and answer["rc"] == 0

    def file(self, path: str) -> str:
        """Return a file's text.

        Raises:
            NotAskedError: It is not there.
        """
        if path not in self.files:
            raise NotAskedError(f"{path} is not there")
        return self.files[path]

    def matching(self, pattern: str) -> dict[str, str]:
        """Return the recorded files whose path matches a shell pattern."""
        return {path: text for path, text in self.files.items() if fnmatch.fnmatch(path, pattern)}

    @property
    def links(self) -> dict[str, parse.Link]:
        """Return the network interfaces by name."""
        return parse.links(self.text("addr"))

    @property
    def hca_map(self) -> dict[str, str]:
        """Return interface -> HCA."""
        return parse.hca_of_interface(self.text("hcamap"))

    @property
    def packages(self) -> tuple[parse.Package, ...]:
        """Return the installed packages of the frozen set."""
        found = parse.packages(self.text("packages"))
        if not found:
            raise NotAskedError("no package of the frozen set is installed")
        return found

    @property
    def engine_environment(self) -> dict[str, str]:
        """Return the rendered engine environment of the current release, the node's part included.

        Raises:
            NotAskedError: No release is there yet, or its engine needs no GPU.
        """
        if not self.expect.gpu_engine:
            raise NotAskedError("this engine runs without a GPU")
        texts = [*self.matching("/opt/*/current/etc/*/engine.env").values()]
        texts += self.matching("/opt/*/current/etc/*/node.env").values()
        if not texts:
            raise NotAskedError("no release is deployed")
        return {key: value for text in texts for key, value in parse.environment(text).items()}
