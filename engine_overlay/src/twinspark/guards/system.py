"""What the operating system says about the running unit: processes, versions, release."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from twinspark.guards.model import Fingerprint

ABSENT: Final = "none"
_ENGINE_TITLE: Final = re.compile(r"^\S+::(EngineCore|Worker|APIServer|DPCoordinator)")


@dataclass(frozen=True, slots=True)
class Process:
    """One live process.

    Attributes:
        pid: Process id.
        ppid: Its parent.
        argv: Command line; one word when the process has set a title.
        started: Unix seconds.
    """

    pid: int
    ppid: int
    argv: tuple[str, ...]
    started: float

    @property
    def title(self) -> str:
        """The command line as one string."""
        return " ".join(word for word in self.argv if word)

    @property
    def is_engine(self) -> bool:
        """Whether it is one of the engine's own: titled by vLLM, or spawned and not yet titled.

        Source: set_process_title, vllm/utils/system_utils.py:184@0.27.1; the resource tracker and
        compile workers load no plugin.
        """
        spawned = "multiprocessing.spawn" in self.title and "resource_tracker" not in self.title
        return spawned or bool(_ENGINE_TITLE.match(self.title))


@dataclass(frozen=True, slots=True)
class System:
    """The machine under a guard; tests put a tree of their own in place of `/`.

    Attributes:
        root: Where `/proc`, `/etc`, `/opt` and `/sys` are.
        systemctl: Program that knows the unit's main process.
    """

    root: Path = Path("/")
    systemctl: str = "systemctl"

    def path(self, absolute: str | Path) -> Path:
        """A path of the machine below this root."""
        return self.root / str(absolute).lstrip("/")

    @property
    def node(self) -> str:
        """Host name."""
        return socket.gethostname()

    def main_pid(self, unit: str) -> int:
        """Main process of a unit; 0 when it does not run.

        Raises:
            OSError: There is no systemctl.
        """
        shown = subprocess.run(
            [self.systemctl, "show", "-p", "MainPID", "--value", unit],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return int(shown.stdout.strip() or 0)

    def uptime_hours(self, unit: str) -> float | None:
        """Hours since the unit's main process started; None where there is no such unit."""
        try:
            process = self.processes().get(self.main_pid(unit))
        except (OSError, subprocess.TimeoutExpired):
            return None
        return max(time.time() - process.started, 0.0) / 3600 if process else None

    def load_per_core(self) -> float:
        """Load average of the last minute by core; 0 where the machine does not say."""
        first = self.read("/proc/loadavg").partition(" ")[0]
        return float(first) / (os.cpu_count() or 1) if first else 0.0

    def processes(self) -> dict[int, Process]:
        """All processes that can be read."""
        boot = self._boot_time()
        found = {}
        for entry in self.path("/proc").iterdir():
            if entry.name.isdigit():
                process = self._process(entry, boot)
                if process:
                    found[process.pid] = process
        return found

    def _boot_time(self) -> float:
        stat = self.path("/proc/stat").read_text(encoding="ascii")
        return next(float(line.split()[1]) for line in stat.splitlines() if line[:5] == "btime")

    def _process(self, entry: Path, boot: float) -> Process | None:
        try:
            argv = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            # the command in stat may hold spaces and parentheses: fields count from the last ")"
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None  # it has ended meanwhile
        rest = fields.rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        words = tuple(word.decode(errors="replace") for word in argv)
        return Process(int(entry.name), int(rest[1]), words, boot + int(rest[19]) / ticks)

    def tree(self, main: int) -> list[Process]:
        """The process `main` and all its descendants, parents first."""
        everyone = self.processes()
        found = [everyone[main]] if main in everyone else []
        for process in found:
            found += [child for child in everyone.values() if child.ppid == process.pid]
        return found

    def environ(self, pid: int) -> dict[str, str]:
        """Environment with which a process was started.

        Raises:
            OSError: Not ours to read, or it has ended.
        """
        pairs = self.path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    def read(self, path: str) -> str:
        """A small text file, stripped; empty when it is not there."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    @staticmethod
    def release(etc: Path) -> str:
        """Id of the release that `etc` belongs to: the folder under `releases` it resolves to."""
        parts = etc.resolve().parts
        return parts[parts.index("releases") + 1] if "releases" in parts[:-1] else ABSENT

    def os_name(self) -> str:
        """PRETTY_NAME of os-release."""
        found = re.search(r'^PRETTY_NAME="?([^"\n]*)', self.read("/etc/os-release"), re.MULTILINE)
        return found[1] if found else ABSENT

    def gpu(self) -> tuple[str, str]:
        """Name and driver version of the GPU; `none` twice without one."""
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            shown = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ABSENT, ABSENT
        name, _, driver = shown.stdout.splitlines()[0].partition(",") if shown.stdout else ("",) * 3
        if shown.returncode or not driver:
            return ABSENT, ABSENT
        return name.strip(), driver.strip()

    def fingerprint(self) -> Fingerprint:
        """The versions that a good result rests on."""
        return Fingerprint(
            vllm=version("vllm"),
            overlay=version("twinspark"),
            cuda=torch_cuda(),
            driver=self.gpu()[1],
            kernel=platform.release(),
        )


def version(distribution: str) -> str:
    """Installed version of a distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ABSENT


def torch_cuda() -> str:
    """CUDA version that torch was built for, read from its version file: no import, no GPU."""
    try:
        listed = metadata.files("torch") or []
    except metadata.PackageNotFoundError:
        return ABSENT
    for entry in listed:
        if str(entry) == "torch/version.py":
            text = Path(str(entry.locate())).read_text(encoding="utf-8")
            found = re.search(r"^cuda[^=\n]*= *'([^']+)'", text, re.MULTILINE)
            return found[1] if found else ABSENT
    return ABSENT
