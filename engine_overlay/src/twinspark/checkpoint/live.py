"""Whether an engine is up on this machine.

Reading 167 GB beside it takes its memory bandwidth, and the page cache takes its memory.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from twinspark.checkpoint.errors import CannotRunError

UNIT_PATTERN = "vllm-*.service"
BUSY_STATES = ("activating", "active", "deactivating", "reloading")
PATIENCE_S = 20


def units() -> list[str]:
    """Names of vLLM's systemd units that are up or on their way; none without systemd.

    Raises:
        CannotRunError: systemd does not answer.
    """
    if shutil.which("systemctl") is None:
        return []
    states = f"--state={','.join(BUSY_STATES)}"
    words = ["systemctl", "list-units", states, "--no-legend", "--plain", "--no-pager"]
    try:
        listing = subprocess.run(
            [*words, UNIT_PATTERN], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRunError(
            f"systemctl does not say within {PATIENCE_S} s whether an engine runs: try again, or "
            "with --beside-engine if none does"
        ) from error
    return [line.split()[0] for line in listing.stdout.splitlines() if line.split()]


def is_engine(argv: list[str]) -> bool:
    """Whether a command line is vLLM's: `vllm serve`, its module form, or a renamed process."""
    if not argv:
        return False
    if argv[0].startswith("VLLM::"):
        return True
    for position, word in enumerate(argv[:4]):
        name = word.rsplit("/", 1)[-1]
        if name == "vllm" and argv[position + 1 : position + 2] == ["serve"]:
            return True
        if word == "-m" and any(
            module.startswith("vllm.entrypoints") for module in argv[position + 1 : position + 2]
        ):
            return True
    return False


def processes(proc: Path = Path("/proc")) -> list[str]:
    """The engine's processes as `pid: command`."""
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            raw = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended, or is another user's under hidepid
        argv = [word.decode(errors="replace") for word in raw.split(b"\0") if word]
        if is_engine(argv):
            found.append(f"{entry.name}: {' '.join(argv)[:80]}")
    return found


def engine() -> str | None:
    """What is up, in words, or None."""
    if names := units():
        return f"unit {', '.join(names)}"
    if running := processes():
        return f"process {running[0]}"
    return None
