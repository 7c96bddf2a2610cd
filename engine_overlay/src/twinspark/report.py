"""The per-process report: what this process holds, in one JSON file that outlives a crash.

vLLM swallows a plugin that fails to load and serves on, so a healthy port proves nothing. Each
process writes `$TWINSPARK_REPORT_DIR/<role>-<pid>.json` and rewrites it whenever something
changes; the guards compare the files with the processes that really run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinspark import process

if TYPE_CHECKING:
    from twinspark.patching import Patch, State

DIRECTORY = "TWINSPARK_REPORT_DIR"
SCHEMA = "twinspark.overlay/1"
_QUIET_S = 5.0  # counters may move every step; the file need not


class Report:
    """State of the overlay in one process, mirrored to a file.

    Attributes:
        directory: Folder of the reports, or None to keep the report in memory.
    """

    def __init__(self, vllm: str, twinspark: str, directory: Path | None = None) -> None:
        self.directory = directory
        self._versions = {"vllm": vllm, "twinspark": twinspark}
        self._patches: dict[str, dict[str, Any]] = {}
        self._kernels: dict[str, dict[str, str]] = {}
        self._agreement: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}
        self._counters: dict[str, int] = {}
        self._lock = threading.RLock()
        self._written = 0.0
        self._hold = False

    def patch(self, patch: Patch, state: State, reason: str) -> None:
        """Set the state of a patch."""
        with self._lock:
            self._patches[patch.id] = {
                "id": patch.id,
                "layer": patch.layer,
                "state": state.value,
                "reason": reason,
                "targets": list(patch.targets),
            }
            self.write()

    def kernel(self, op: str, kernel: str, reason: str) -> None:
        """Set which kernel an operation takes, and why."""
        with self._lock:
            self._kernels[op] = {"op": op, "kernel": kernel, "reason": reason}
            self.write()

    def agreement(self, op: str, record: dict[str, Any]) -> None:
        """Set how far an operation's kernels have agreed so far (mode `check`)."""
        with self._lock:
            if self._agreement.get(op) != record:
                self._agreement[op] = record
                self.write()

    def fact(self, name: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
        """Set a fact that ranks are compared by, such as the layout of the KV cache."""
        with self._lock:
            if self._facts.get(name) != value:
                self._facts[name] = value
                self.write()

    def count(self, name: str, amount: int = 1) -> int:
        """Add to a counter; its file follows at once for the first event, later within seconds.

        Returns:
            The new value.
        """
        with self._lock:
            new = self._counters.get(name, 0) + amount
            self._counters[name] = new
            if new == amount or time.monotonic() - self._written > _QUIET_S:
                self.write()
            return new

    def state_of(self, patch_id: str) -> str:
        """State of a patch as a word; `unknown` before it has one."""
        return str(self._patches.get(patch_id, {}).get("state", "unknown"))

    def as_dict(self) -> dict[str, Any]:
        """The report as the JSON document says it."""
        config = process.read_config(sys.argv)
        name = process.process_name()
        return {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "role": process.role(name, sys.argv, config),
            "rank": process.rank(name, config),
            "time": time.time(),
            **self._versions,
            "argv": list(sys.argv),
            "config": {"path": config.path, "sha256": config.sha256} if config else None,
            "patches": list(self._patches.values()),
            "kernels": list(self._kernels.values()),
            "agreement": list(self._agreement.values()),
            "facts": dict(self._facts),
            "counters": dict(self._counters),
        }

    def batch(self) -> _Batch:
        """Context in which changes are collected and written once, at its end."""
        return _Batch(self)

    def write(self) -> None:
        """Replace this process's file in one step; nothing without a directory."""
        if self.directory is None or self._hold:
            return
        with self._lock:
            document = self.as_dict()
            self.directory.mkdir(parents=True, exist_ok=True)
            path = self.directory / f"{document['role']}-{document['pid']}.json"
            temporary = path.with_name(f".{path.name}.{threading.get_native_id()}")
            temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            temporary.replace(path)
            self._written = time.monotonic()

    def after_fork(self) -> None:
        """In a forked child: write its own file, if it is one of multiprocessing's."""
        self._lock = threading.RLock()  # the parent's may have been held by another thread
        if process.process_name() != "MainProcess":
            self.write()


class _Batch:
    def __init__(self, report: Report) -> None:
        self._report = report

    def __enter__(self) -> None:
        self._report._hold = True  # noqa: SLF001 - two halves of one thing

    def __exit__(self, *_: object) -> None:
        self._report._hold = False  # noqa: SLF001 - two halves of one thing
        self._report.write()


def from_environment(vllm: str, twinspark: str) -> Report:
    """A report of this process into the folder that the environment names, if it names one."""
    folder = os.environ.get(DIRECTORY)
    return Report(vllm, twinspark, Path(folder) if folder else None)


_current = Report("none", "none")


def use(report: Report) -> None:
    """Make a report this process's own."""
    global _current  # noqa: PLW0603 - one report a process
    _current = report


def current() -> Report:
    """Report of this process; one in memory until the overlay is registered."""
    return _current
