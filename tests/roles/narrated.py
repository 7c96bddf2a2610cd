"""What a play says, by role: the default callback's text, read task by task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HEADER: Final = re.compile(r"^(TASK|RUNNING HANDLER|PLAY) \[(.*)\] \**$|^PLAY RECAP \*+$")
_RESULT: Final = re.compile(r"^(ok|changed|failed|fatal|skipping): \[(\w+)(?: -> [^\]]+)?\]")


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a play.

    Attributes:
        role: The role that it belongs to; empty for a playbook's own.
        name: Its sentence.
        results: Node and state (ok, changed, failed, fatal, skipping); a loop has several each.
        text: All else that was printed, such as differences.
    """

    role: str
    name: str
    results: tuple[tuple[str, str], ...]
    text: str

    @property
    def nodes(self) -> set[str]:
        """Nodes on which it changed something, or would have."""
        return {node for node, state in self.results if state == "changed"}


@dataclass(frozen=True, slots=True)
class Narrated:
    """All tasks of a play, in order."""

    tasks: tuple[Task, ...]

    def of(self, role: str) -> list[Task]:
        """A role's tasks that had a result."""
        return [task for task in self.tasks if task.role == role and task.results]

    def plays(self, role: str) -> bool:
        """Whether a role came that far: a task had a result, or a part of it was included."""
        return any(
            task.results or task.text.startswith("included: ")
            for task in self.tasks
            if task.role == role
        )

    def changed(self, role: str) -> list[str]:
        """Sentences of a role's tasks that changed something, or would have."""
        return [task.name for task in self.of(role) if task.nodes]

    def task(self, role: str, name: str) -> Task:
        """A role's task whose sentence begins with `name`, which ran once.

        Raises:
            AssertionError: It did not run, or not once.
        """
        found = [task for task in self.of(role) if task.name.startswith(name)]
        assert len(found) == 1, f"{role}: {name!r} ran {len(found)} times"
        return found[0]


def read(text: str) -> Narrated:
    """Read what ansible-playbook printed."""
    tasks: list[Task] = []
    role = name = ""
    results: list[tuple[str, str]] = []
    lines: list[str] = []
    for line in [*text.splitlines(), "PLAY RECAP *"]:
        if header := _HEADER.match(line):
            if name and not name.startswith("Validating arguments"):
                tasks.append(Task(role, name, tuple(results), "\n".join(lines).strip()))
            words = header[2] if header[1] in {"TASK", "RUNNING HANDLER"} else ""
            role, colon, name = words.partition(" : ")
            role, name = (role, name) if colon else ("", role)
            results, lines = [], []
        elif result := _RESULT.match(line):
            results.append((result[2], result[1]))
        else:
            lines.append(line)
    return Narrated(tuple(tasks))
