"""One battery at a time on a node, apart from the terminal that started it, and resumable.

The lock is a kernel lock on an open file that the starter hands to the running process: no race
between the two, and it is gone when the process is, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from pydantic import TypeAdapter, ValidationError

from twinspark.guards.model import Check, Fingerprint, Moment  # noqa: TC001 - for pydantic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RESEED: Final = 1_000_003  # a resumed guard asks new prompts: its old ones are warm by now
_START: Final = "import sys; from twinspark.cli import main; sys.exit(main())"


class BatteryError(Exception):
    """A battery cannot start, resume or be found; the text says why."""


class BusyError(BatteryError):
    """Another battery runs on this node."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a battery has come; rewritten after each guard.

    Attributes:
        battery: `quick` or `full`.
        started: Unix seconds of the first start.
        seed: Seed of the first start.
        resumes: How often it was resumed.
        fingerprint: Versions it runs on.
        guards: Names, in order.
        done: Names that are finished.
        checks: Their results.
        status: Exit status once finished.
        arguments: Command line after `twinspark battery NAME`.
    """

    battery: Literal["quick", "full"]
    started: Moment
    seed: int
    fingerprint: Fingerprint
    guards: list[str]
    done: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    resumes: int = 0
    status: int | None = None
    arguments: list[str] = field(default_factory=list)
    schema: Literal["twinspark.battery/1"] = "twinspark.battery/1"

    def after(self, name: str, checks: list[Check]) -> Progress:
        """The progress once a guard has finished."""
        return replace(self, done=[*self.done, name], checks=[*self.checks, *checks])

    @property
    def present_seed(self) -> int:
        """Seed of the guards that are still to run."""
        return self.seed + RESEED * self.resumes


_PROGRESS: Final = TypeAdapter(Progress)


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a node keeps its battery.

    Attributes:
        path: `<state>/battery`.
    """

    path: Path

    @property
    def log(self) -> Path:
        """Output of the running or last battery."""
        return self.path / "log"

    @property
    def report(self) -> Path:
        """Report of the last finished battery; `.html` beside it."""
        return self.path / "report.json"

    @property
    def progress(self) -> Path:
        """Progress of the running or last battery."""
        return self.path / "progress.json"

    def write(self, progress: Progress) -> None:
        """Replace the progress in one step."""
        part = self.path / f".progress.{os.getpid()}"
        part.write_bytes(_PROGRESS.dump_json(progress, indent=1) + b"\n")
        part.replace(self.progress)

    def read(self) -> Progress | None:
        """The progress, or None when there is none of this version."""
        try:
            return _PROGRESS.validate_json(self.progress.read_bytes())
        except (OSError, ValidationError):
            return None

    def open_log(self, arguments: Sequence[str], *, anew: bool) -> None:
        """Begin the log of a battery, or go on with it, with a line that says what runs."""
        with self.log.open("wb" if anew else "ab") as log:
            log.write(f"--- {time.strftime('%F %T')} {' '.join(arguments)}\n".encode())

    def lock(self, tries: int = 5) -> int:
        """Take the node's battery lock.

        Args:
            tries: A `status` holds the lock for a moment, so one refusal is no proof.

        Returns:
            The file descriptor that holds it.

        Raises:
            BusyError: Another battery runs.
            BatteryError: The folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            why = f"{self.path}: {error.strerror}: run as root or with --state"
            raise BatteryError(why) from error
        for _ in range(tries):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)
            else:
                return held
        os.close(held)
        raise BusyError(f"a battery runs already (pid {self.holder()}): twinspark battery status")

    def claim(self, held: int, pid: int) -> None:
        """Write into the lock file who holds it."""
        os.ftruncate(held, 0)
        os.pwrite(held, f"{pid}\n".encode(), 0)

    def holder(self) -> int:
        """Pid of the process that holds the lock, or held it last; 0 when unknown."""
        try:
            return int((self.path / "lock").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def running(self) -> bool:
        """Whether a battery runs: whether its lock is held."""
        try:
            os.close(self.lock(tries=2))
        except BusyError:
            return True
        return False


def detach(folder: Folder, arguments: Sequence[str], held: int) -> int:
    """Start `twinspark battery ...` in a session of its own, with the lock in its hands.

    Args:
        folder: Where it logs.
        arguments: After `twinspark battery`.
        held: The lock's file descriptor; the caller may close its copy afterwards.

    Returns:
        Its pid, which is also its process group and session.
    """
    command = [sys.executable, "-c", _START, "battery", *arguments, "--lock-fd", str(held)]
    with folder.log.open("ab") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=[held], cwd="/",
        )  # fmt: skip
    folder.claim(held, child.pid)
    return child.pid


def stop(folder: Folder, patience: float = 10.0) -> str:
    """End the running battery: its whole process group where it leads one.

    Returns:
        What was done.

    Raises:
        BatteryError: None runs.
    """
    # the lock is held, so the pid in it is alive and is the battery's
    pid = folder.holder() if folder.running() else 0
    if not pid:
        raise BatteryError("no battery runs")
    send = os.killpg if os.getpgid(pid) == pid else os.kill
    send(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while folder.running():
        if time.monotonic() > deadline:
            send(pid, signal.SIGKILL)
            return f"killed pid {pid}: it did not end within {patience:g} s"
        time.sleep(0.1)
    return f"stopped pid {pid}; twinspark battery resume goes on"


def status(folder: Folder) -> tuple[str, int]:
    """A line about the running or last battery, and an exit status (2 = none, or interrupted)."""
    runs = folder.running()  # asked first: what ends between the two is finished, not interrupted
    now = folder.read()
    if now is None:
        return "no battery has run on this node", 2
    count = f"{len(now.done)} of {len(now.guards)} guards"
    failed = sum(check.ok is False for check in now.checks)
    age = f"started {time.strftime('%F %T', time.localtime(now.started))}"
    if runs:
        left = [name for name in now.guards if name not in now.done]
        doing = f", now {left[0]}" if left else ""
        pid = folder.holder()
        return f"{now.battery}: runs, pid {pid}, {count}{doing}, {failed} failed, {age}", 0
    if now.status is None:
        line = f"{now.battery}: interrupted after {count}, {failed} failed; resume or start anew"
        return line, 2
    return (
        f"{now.battery}: finished with status {now.status}, {count}, {failed} failed, {age}",
        now.status,
    )
