"""Let an engine start only when its memory is free, dropping the page cache where that helps.

On GB10 the GPU's memory is the host's: page cache counts as used, so a load fails with 116 GiB
"available". The cache is dropped only when no engine lives on the node (its own mapped weights are
page cache too), and once: what is not free then is held by something a person has to look at.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.checkpoint.live import is_engine
from twinspark.host.checks_host import KIB_PER_GIB, meminfo
from twinspark.host.parse import amount

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: `start`, `drop` the page cache first, or `refuse`."""

    action: str
    reason: str


def engines(proc: Path, own: int) -> tuple[int, ...]:
    """Return the ids of living engine processes, this one's own start and its parents left out."""
    skip = {own, *_ancestors(proc, own)}
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if int(folder.name) not in skip and is_engine(words.split("\0")):
            found.append(int(folder.name))
    return tuple(sorted(found))


def _ancestors(proc: Path, process: int) -> set[int]:
    """Return the chain of parents."""
    found: set[int] = set()
    while process > 1 and process not in found:
        found.add(process)
        try:
            text = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        process = int(text.rsplit(")", 1)[-1].split()[1])
    return found


def decide(
    memory: dict[str, int],
    wanted_gib: float,
    living: tuple[int, ...],
    *,
    dropped: bool,
    of: str = "free",
) -> Decision:
    """Decide from /proc/meminfo (KiB) whether an engine that needs `wanted_gib` may start.

    Args:
        memory: Name -> KiB.
        wanted_gib: Memory in GiB that the engine takes.
        living: Engine processes on this node.
        dropped: Whether the page cache has just been dropped.
        of: `free`, or `available` where page cache gives way to the engine by itself (a CPU's).
    """
    free = memory["MemFree"] / KIB_PER_GIB
    available = memory.get("MemAvailable", memory["MemFree"]) / KIB_PER_GIB
    numbers = f"{free:.1f} GiB free, {available:.1f} GiB available, {wanted_gib:g} GiB wanted"
    if living:
        return Decision(
            "refuse", f"{numbers}; an engine lives here: process {', '.join(map(str, living))}"
        )
    if (free if of == "free" else available) >= wanted_gib:
        return Decision("start", numbers)
    if dropped or available < wanted_gib:
        return Decision(
            "refuse",
            f"{numbers}; it is not page cache: see what holds it with `ps aux --sort=-rss`",
        )
    return Decision("drop", f"{numbers}; page cache holds the rest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--need", type=amount, required=True, help="memory in GiB that the engine takes"
    )
    parser.add_argument(
        "--of",
        choices=("free", "available"),
        default="free",
        help="what must suffice: free memory (GB10), or also page cache (a CPU engine)",
    )
    parser.add_argument(
        "--proc", type=Path, default=Path("/proc"), help="where the processes are (for tests)"
    )
    parser.add_argument(
        "--wait",
        type=amount,
        default=60.0,
        help="seconds for an ended engine's memory to come back (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")


def run(args: argparse.Namespace) -> int:
    """Admit or refuse: 0 start, 1 not, 2 it could not look, or not drop the page cache.

    Raises:
        OSError: The processes or the memory cannot be looked at.
        ValueError: /proc/meminfo does not say how much is free.
    """
    own = os.getpid()
    end = time.monotonic() + args.wait
    dropped = False
    while True:
        memory = meminfo((args.proc / "meminfo").read_text(encoding="ascii"))
        living = engines(args.proc, own)
        decision = decide(memory, args.need, living, dropped=dropped, of=args.of)
        if decision.action == "refuse" and time.monotonic() < end:
            time.sleep(1)
            continue
        print(f"memory admission: {decision.action}: {decision.reason}", flush=True)
        if decision.action != "drop" or args.dry_run:
            return 1 if decision.action == "refuse" else 0
        try:
            os.sync()
            (args.proc / "sys/vm/drop_caches").write_text("1\n", encoding="ascii")
        except OSError as error:
            print(f"memory admission: the page cache cannot be dropped: {error}", file=sys.stderr)
            return 2
        dropped = True
