"""Measure a collective between the nodes in the engine's own torch, and see which NCCL it maps.

A ping or a TCP stream passes on pairs whose collectives run at a fraction; 64 MiB all-reduce does
not. Run on all nodes at once, before the engine: `python -m twinspark.host.pair` in the release.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from twinspark.host.environment import take_over
from twinspark.host.parse import sort_key

MIB = 1024 * 1024


def mapped_nccl(maps: str) -> str:
    """Return the path of the NCCL library in the text of /proc/PID/maps, or ""."""
    found = [line.split()[-1] for line in maps.splitlines() if re.search(r"libnccl\.so", line)]
    return found[0] if found else ""


def bus_bandwidth(mib: float, seconds: float, nodes: int) -> float:
    """Return an all-reduce's bus bandwidth in GB/s, nccl-tests' definition: 2 (n-1)/n size/time."""
    return 2 * (nodes - 1) / nodes * mib * MIB / seconds / 1e9


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Time all-reduces of `--mib` MiB; bus bandwidth from the median of `--iterations`."""
    import torch  # noqa: PLC0415 (the environment is taken over first)
    import torch.distributed as dist  # noqa: PLC0415

    where = "cuda" if args.backend == "nccl" else "cpu"
    store = f"tcp://{args.master}:{args.port}"
    dist.init_process_group(args.backend, init_method=store, rank=args.rank, world_size=args.nodes)
    data = torch.ones(int(args.mib * MIB) // 4, dtype=torch.float32, device=where)
    spent: list[float] = []
    for turn in range(args.iterations + 3):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
        if where == "cuda":
            torch.cuda.synchronize()
        if turn >= 3:  # the first ones make connections
            spent.append(time.perf_counter() - start)
    right = bool((data == 1).all())
    library = mapped_nccl(Path("/proc/self/maps").read_text(encoding="utf-8"))
    version = ".".join(map(str, torch.cuda.nccl.version())) if where == "cuda" else ""
    dist.destroy_process_group()
    rate = bus_bandwidth(args.mib, statistics.median(spent), args.nodes)
    return {"gbs": round(rate, 2), "right": right, "library": library, "nccl": version}


def judge(found: dict[str, Any], floor: float, nccl_at_least: str) -> list[str]:
    """Return what is wrong."""
    wrong = []
    if not found["right"]:
        wrong.append("the sum is wrong")
    if found["gbs"] < floor:
        wrong.append(f"{found['gbs']:g} GB/s, at least {floor:g} (docs/symptoms.md S10, S11)")
    if found["nccl"] and sort_key(found["nccl"]) < sort_key(nccl_at_least):
        wrong.append(f"NCCL {found['nccl']} is mapped, {nccl_at_least} wanted (S07)")
    return wrong


def main() -> int:
    """Measure and judge: 0 good, 1 not; prints one line of JSON."""
    parser = argparse.ArgumentParser(prog="twinspark.host.pair", description=__doc__)
    parser.add_argument("--env", default="-", help="the engine's environment, - for standard input")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--master", required=True, help="address of rank 0 on the first rail")
    parser.add_argument("--port", type=int, default=29577)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--mib", type=float, default=64.0)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--floor", type=float, default=15.0, help="GB/s")
    parser.add_argument("--nccl-at-least", default="2.29.3")
    args = parser.parse_args()
    take_over(args.env)
    found = measure(args)
    wrong = judge(found, args.floor, args.nccl_at_least)
    print(json.dumps({**found, "mib": args.mib, "backend": args.backend, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
