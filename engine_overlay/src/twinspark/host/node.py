"""One node's recording, read: the only thing that checks look at."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twinspark.host import parse
from twinspark.host.record import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twinspark.host.expect import Expect

T = TypeVar("T")


class RecordingError(ValueError):
    """A recording cannot be read."""


class NotAskedError(Exception):
    """A program or a file is not there: nothing can be said, and that is no fault."""


class NoAnswerError(Exception):
    """A program failed, or what it or a file says is torn: what they tell about is not known."""


def understood(source: str, text: str, read: Callable[[str], T]) -> T:
    """Return what `read` makes of a text.

    Args:
        source: The command or the file that it is of.
        text: What is read.
        read: A parser.

    Raises:
        NoAnswerError: The parser makes nothing of it.
    """
    try:
        return read(text)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # JSON of any shape
        said = f"{type(error).__name__}: {error}"
        raise NoAnswerError(f"{source} cannot be read: {said}") from error


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
        known = isinstance(value, dict) and value.get("schema") == SCHEMA
        if not known or not {"commands", "files"} <= value.keys():
            raise RecordingError(f"{name}: no recording of schema {SCHEMA}: {str(value)[:80]!r}")
        return cls(name, value["commands"], value["files"], expect)

    def text(self, command: str, *, failing: bool = False) -> str:
        """Return what a command printed, standard error after it where it failed.

        Args:
            command: Its id.
            failing: Its failure is an answer too, where it says anything.

        Raises:
            NotAskedError: The command was not run, or there is no such program.
            NoAnswerError: It failed, and that is no answer.
        """
        answer = self.commands.get(command)
        if answer is None or answer["rc"] == 127:
            raise NotAskedError(answer["err"].strip() if answer else f"{command} was not asked")
        status, error = answer["rc"], str(answer["err"])
        said = str(answer["out"]) + (error if status != 0 else "")
        # 124 and 126 are the recorder's: the program itself has said nothing
        if status != 0 and not (failing and status not in {124, 126} and said.strip()):
            asked = " ".join(answer["argv"]) or command
            why = " ".join(error.split())[-200:] or "no word"
            raise NoAnswerError(f"`{asked}` ended with {status}: {why}")
        return said

    def parsed(self, command: str, read: Callable[[str], T]) -> T:
        """Return what a parser makes of a command's text.

        Raises:
            NotAskedError: As `text` does.
            NoAnswerError: As `text` does, or the parser makes nothing of it.
        """
        return understood(command, self.text(command), read)

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

    def read(self, path: str, read: Callable[[str], T]) -> T:
        """Return what a parser makes of a file.

        Raises:
            NotAskedError: It is not there.
            NoAnswerError: It is torn.
        """
        return understood(path, self.file(path), read)

    def matching(self, pattern: str) -> dict[str, str]:
        """Return the recorded files whose path matches a shell pattern."""
        return {path: text for path, text in self.files.items() if fnmatch.fnmatch(path, pattern)}

    @property
    def links(self) -> dict[str, parse.Link]:
        """Return the network interfaces by name."""
        return self.parsed("addr", parse.links)

    @property
    def units(self) -> dict[str, parse.Unit]:
        """Return the systemd units that were asked for, by name."""
        return self.parsed("units", parse.units)

    @property
    def driver(self) -> str:
        """Return the version of the loaded driver."""
        return self.parsed("smi", lambda text: parse.gpus(text)[0].driver)

    @property
    def hca_map(self) -> dict[str, str]:
        """Return interface -> HCA."""
        return parse.hca_of_interface(self.text("hcamap"))

    @property
    def packages(self) -> tuple[parse.Package, ...]:
        """Return the installed packages of the frozen set."""
        # dpkg-query fails when one of the patterns finds nothing, and lists the others
        found = parse.packages(self.text("packages", failing=True))
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
