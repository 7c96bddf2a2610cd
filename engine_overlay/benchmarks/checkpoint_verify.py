"""verify against `sha256sum` with the same parallelism, and against disk and cores.

The limits are those of as many streams as verify has by itself: direct reads by `dd`, and SHA-256
over memory by all cores. Whichever is lower bounds verify.

    python engine_overlay/benchmarks/checkpoint_verify.py --out RESULT.json

Needs 8.4 GB under --work and removes them again. Reports nothing if a flipped byte is not found.
Processor seconds a byte tell the same on a busy machine as on an idle one; wall time does not.
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from checkpoint_common import evict, make_files, provenance, summary, timed, write

from checkpoint.builders import flip
from twinspark.checkpoint import hashing

TOOL = [sys.executable, "-m", "twinspark.checkpoint"]


def main() -> int:
    """Run the benchmark; 1 when its gate is red."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"))  # noqa: S108 - a disk, not a secret
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--size", type=int, default=700 * 10**6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limits-only", action="store_true", help="no sha256sum, no openssl")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    origin = {**provenance(), "realtime": os.sched_getscheduler(0) == os.SCHED_FIFO}
    work = Path(tempfile.mkdtemp(prefix="twinspark-bench-", dir=args.work))
    try:
        if not gate(work / "gate"):
            print("the gate is red: a flipped byte was not found", file=sys.stderr)
            return 1
        total = make_files(work / "set", files=args.files, size=args.size)
        rounds = [
            one_round(work / "set", args.workers, total, yardsticks=not args.limits_only)
            for _ in range(args.rounds)
        ]
        result: dict[str, object] = {
            "schema": "twinspark.bench/1",
            "benchmark": "checkpoint verify",
            "provenance": origin,
            "bytes": total,
            "files": args.files,
            "workers": args.workers,
            "n": args.rounds,
            "gb_per_s": rates(rounds, cpu=False),
            **{
                f"ratio_to_{name}": summary([one["verify"] / one[name] for one in rounds])
                for name in YARDSTICKS
                if name in rounds[0]
            },
            "bound_by": ["disk" if r["disk_read"] < r["core_limit"] else "cores" for r in rounds],
            "ratio_to_limit_wall": summary(
                [r["verify_by_itself"] / min(r["disk_read"], r["core_limit"]) for r in rounds]
            ),
            "gb_per_cpu_s": rates(rounds, cpu=True),
            "ratio_to_core_limit_cpu": summary(
                [r["verify_cpu"] / read_and_hash(r) for r in rounds]
            ),
            "peak_mib": summary([r["peak_mib"] for r in rounds]),
        }
        write(args.out, result)
    finally:
        shutil.rmtree(work)
    return 0


# one file a process; the shell's argument is the file
DIRECT_READ = ["sh", "-c", 'dd if="$0" of=/dev/null iflag=direct bs=2M status=none']
YARDSTICKS = {"sha256sum": ["sha256sum"], "openssl_dgst": ["openssl", "dgst", "-sha256"]}


def rates(rounds: list[dict[str, float]], *, cpu: bool) -> dict[str, object]:
    """Summaries of all GB a second, or a processor second."""
    names = [name for name in rounds[0] if name != "peak_mib" and name.endswith("_cpu") is cpu]
    return {name: summary([one[name] for one in rounds]) for name in names}


def gate(root: Path) -> bool:
    """Whether verify passes a sound set and finds one flipped bit."""
    make_files(root, files=2, size=10**6)
    command = [*TOOL, "verify", str(root), "--quiet", "--beside-engine"]
    sound = subprocess.run(command, capture_output=True, check=False).returncode == 0
    flip(root / "part-001.bin", 777)
    return sound and subprocess.run(command, capture_output=True, check=False).returncode == 1


def one_round(root: Path, workers: int, total: int, *, yardsticks: bool) -> dict[str, float]:
    """All rates in GB/s, one after the other, each from a cold cache."""
    names = "\0".join(str(path) for path in sorted(root.glob("*.bin")))
    own = hashing.default_workers()
    evict(root)
    read = timed(["xargs", "-0", "-n1", f"-P{own}", *DIRECT_READ], text=names)
    evict(root)
    by_itself = timed([*TOOL, "verify", str(root), "--quiet", "--beside-engine"])
    evict(root)
    tool = timed(
        [*TOOL, "verify", str(root), "--quiet", "--beside-engine", "--workers", str(workers)]
    )
    others = {}
    for name, command in YARDSTICKS.items() if yardsticks else ():
        evict(root)
        done = timed(["xargs", "-0", "-n1", f"-P{workers}", *command], text=names)
        others |= {name: total / done["wall_s"] / 1e9, f"{name}_cpu": total / done["cpu_s"] / 1e9}
    wall, cpu = core_limit(len(os.sched_getaffinity(0)))
    return {
        "verify": total / tool["wall_s"] / 1e9,
        "verify_by_itself": total / by_itself["wall_s"] / 1e9,
        "disk_read": total / read["wall_s"] / 1e9,
        "core_limit": wall,
        "verify_cpu": total / by_itself["cpu_s"] / 1e9,
        "hash_alone_cpu": cpu,
        "read_alone_cpu": total / read["cpu_s"] / 1e9,
        "peak_mib": tool["peak_mib"],
        **others,
    }


def read_and_hash(rates: dict[str, float]) -> float:
    """GB a processor second that reading and hashing cost at least."""
    return 1 / (1 / rates["hash_alone_cpu"] + 1 / rates["read_alone_cpu"])


def core_limit(workers: int) -> tuple[float, float]:
    """SHA-256 over memory by all workers: GB a second, and GB a processor second."""
    block = bytes(2**20)

    def spin(_number: int) -> int:
        digest, done, end = hashlib.sha256(), 0, time.monotonic() + 2.0
        while time.monotonic() < end:
            digest.update(block)
            done += len(block)
        return done

    begun, used = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(workers) as pool:
        done = sum(pool.map(spin, range(workers)))
    return (
        done / (time.monotonic() - begun) / 1e9,
        done / (time.process_time() - used) / 1e9,
    )


if __name__ == "__main__":
    sys.exit(main())
