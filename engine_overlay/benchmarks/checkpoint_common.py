"""What the checkpoint benchmarks share: the file set, fair cold starts, provenance."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

BLOCK = 64 * 2**20
LABEL = "emulated"  # another machine, whichever it was; never a Spark


def make_files(root: Path, *, files: int, size: int) -> int:
    """`files` files of `size` bytes, no two blocks equal; returns the bytes of the set."""
    root.mkdir(parents=True, exist_ok=True)
    block = bytearray(os.urandom(BLOCK))
    counter = 0
    for number in range(files):
        with (root / f"part-{number:03d}.bin").open("wb") as stream:
            left = size
            while left:
                counter += 1
                block[:8] = counter.to_bytes(8, "big")
                left -= stream.write(block[: min(left, BLOCK)])
            os.fsync(stream.fileno())
    # a set without weights is refused: one empty shard, ten bytes
    (root / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return files * size


def evict(root: Path) -> None:
    """Take the set out of the page cache, and only it, so that each run reads the disk."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(command: list[str], *, text: str | None = None) -> dict[str, float]:
    """Run a command; wall and processor seconds with its children's, and its peak memory in MiB.

    The peak is VmHWM, sampled: `ru_maxrss` begins with the size of whoever forked.

    Raises:
        CalledProcessError: it failed.
    """
    before = os.times()
    begun = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE if text is not None else None, stdout=subprocess.DEVNULL
    )
    if text is not None and process.stdin is not None:
        process.stdin.write(text.encode())
        process.stdin.close()
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, peak_mib(process.pid))
        time.sleep(0.01)
    wall = time.monotonic() - begun
    after = os.times()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    cpu = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return {"wall_s": wall, "cpu_s": cpu, "peak_mib": peak}


def peak_mib(pid: int) -> float:
    """A process' peak resident memory so far; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def summary(values: list[float]) -> dict[str, object]:
    """Median, extremes and the values."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "values": [round(value, 4) for value in values],
    }


def provenance() -> dict[str, object]:
    """Where, when and how a result came about."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return {
        "label": LABEL,
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", *sys.argv]),
        "commit": commit,
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def write(path: Path | None, result: dict[str, object]) -> None:
    """Print the result and, if a path is given, keep it."""
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
