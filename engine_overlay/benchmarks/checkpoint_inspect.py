"""Seconds of `inspect` on sparse files with the real model's 48 shards and 72,317 tensors.

    python engine_overlay/benchmarks/checkpoint_inspect.py --out RESULT.json

On a busy machine put `chrt -f 10` before it: each run has its core to itself, as on an idle one.
The files claim 166,886,535,336 bytes and take 20 MB of disk. Each run is a new process that must
find the structure.
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from checkpoint_common import provenance, summary, timed, write

from checkpoint.builders import sparse_model


def main() -> int:
    """Run the benchmark; a wrong answer ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    origin = provenance()
    with tempfile.TemporaryDirectory(prefix="twinspark-bench-", dir="/var/tmp") as folder:
        claimed = sparse_model(Path(folder))
        tool = [sys.executable, "-m", "twinspark.checkpoint", "inspect"]
        command = [*tool, folder, "--expect", "0731-or-dspark"]
        runs = [timed(command) for _ in range(args.rounds)]
    write(
        args.out,
        {
            "schema": "twinspark.bench/1",
            "benchmark": "checkpoint inspect",
            "provenance": {**origin, "realtime": os.sched_getscheduler(0) == os.SCHED_FIFO},
            "claimed_bytes": claimed,
            "tensors": 72_317,
            "n": args.rounds,
            "wall_s": summary([run["wall_s"] for run in runs]),
            "cpu_s": summary([run["cpu_s"] for run in runs]),
            "peak_mib": summary([run["peak_mib"] for run in runs if run["peak_mib"]]),
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
