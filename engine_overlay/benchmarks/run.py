"""Gate, then time, the kernels on a GPU; write JSON with provenance.

To repeat: PYTHONPATH=engine_overlay/src python3 engine_overlay/benchmarks/run.py --sweep --out DIR
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from shapes import OPS, Shape, of

SCHEMA = "twinspark.kernel-bench/1"


def provenance() -> dict[str, Any]:
    """What produced the figures."""
    import torch  # noqa: PLC0415 - the parent process needs no GPU
    import triton  # noqa: PLC0415

    query = "--query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu"
    card = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return {
        "device": torch.cuda.get_device_name(0),
        "nvidia_smi": card.stdout.strip(),
        "capability": "sm_{}{}".format(*torch.cuda.get_device_capability(0)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": os.environ.get("TWINSPARK_COMMIT", ""),
        "label": "emulated: ran on this card, which is not a GB10",
        "repeat": "python3 engine_overlay/benchmarks/run.py --sweep --out DIR",
    }


def ceilings() -> dict[str, float]:
    """What the card reaches on its own: the floors are made of these."""
    import timing  # noqa: PLC0415 - imports torch

    return {
        "copy_bytes_per_s": timing.copy_bandwidth(),
        "memset_bytes_per_s": timing.memset_bandwidth(),
        "fp8_flop_per_s": timing.fp8_rate(),
    }


def _row(
    shape: Shape, who: str, kind: str, calls: list[Any], top: dict[str, float]
) -> dict[str, Any]:
    import timing  # noqa: PLC0415

    try:
        timed = timing.measure(calls)
    except Exception as error:  # noqa: BLE001 - one failing configuration must not lose the rest
        return {
            "op": shape.op,
            "shape": shape.name,
            "who": who,
            "kind": kind,
            "error": str(error)[:300],
        }
    floor = max(shape.bytes / top["copy_bytes_per_s"], shape.flop / top["fp8_flop_per_s"]) * 1e6
    seconds = timed.median_us * 1e-6
    return {
        "op": shape.op,
        "shape": shape.name,
        "who": who,
        "kind": kind,
        **{key: round(value, 3) for key, value in asdict(timed).items()},
        "tflops": round(shape.flop / seconds / 1e12, 2),
        "gbps": round(shape.bytes / seconds / 1e9, 1),
        "floor_us": round(floor, 3),
        "of_floor": round(floor / timed.median_us, 4),
    }


def gate(op: str, configs: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The configurations whose results are right, and what each gate said."""
    import cases  # noqa: PLC0415

    passed, rows = [], []
    for config in configs:
        row: dict[str, Any] = {"op": op, "config": config.key if config else "chosen"}
        try:
            row["relative_error"] = cases.GATES[op](config)
            passed.append(config)
        except Exception as error:  # noqa: BLE001
            row["error"] = f"{type(error).__name__}: {error}"[:400]
        rows.append(row)
    return passed, rows


def work(op: str, *, sweep: bool, gate_only: bool, top: dict[str, float]) -> dict[str, Any]:
    """Gate and time one operation, in this process."""
    import cases  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from sweeps import SWEEPS, chosen  # noqa: PLC0415

    torch.manual_seed(int(time.time()))
    result: dict[str, Any] = {"gates": [], "rows": []}
    checked: dict[Any, bool] = {}
    for shape in of(op):
        configs = list(SWEEPS[op](shape)) if sweep else [None]
        fresh = [config for config in configs if config not in checked]
        passed, rows = gate(op, fresh)
        checked |= {config: config in passed for config in fresh}
        result["gates"] += rows
        if gate_only:
            continue
        bench = cases.BENCHES[op](shape, [c for c in configs if checked[c]])
        major, minor = torch.cuda.get_device_capability()
        card = torch.cuda.get_device_properties(0).multi_processor_count
        names = chosen(shape, 10 * major + minor, card)
        for kind, table in (("kernel", bench.kernels), ("anchor", bench.anchors)):
            result["rows"] += [
                _row(shape, who, kind, calls, top) | {"chosen": kind == "kernel" and who in names}
                for who, calls in table.items()
            ]
        del bench
        torch.cuda.empty_cache()
    return result


def _spawn(
    op: str, out: Path, args: argparse.Namespace, *, gate_only: bool
) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--worker", op, "--out", str(out)]
    command += ["--sweep"] if args.sweep else []
    command += ["--gate-only"] if gate_only else []
    return subprocess.Popen(command)


def warm(what: str) -> int:
    """Let DeepGEMM compile one anchor of one case: `op:index:anchor`."""
    import cases  # noqa: PLC0415
    import torch  # noqa: PLC0415

    op, index, anchor = what.split(":")
    cases.BENCHES[op](of(op)[int(index)], []).anchors[anchor][0]()
    torch.cuda.synchronize()
    return 0


def anchors_to_warm(ops: list[str]) -> list[str]:
    """One process an anchor that compiles: they take 10 s and more each, but side by side."""
    wanted = [
        *(f"mqa_logits:{i}:deepgemm" for i in (0, 3)),
        *(f"paged_mqa_logits:{i}:deepgemm" for i in (0, 1, 2, 3)),
        *(f"hc_prenorm_gemm:0:deepgemm splits={s}" for s in (4, 8, 16, 32, 64, 128)),
        *(f"hc_prenorm_gemm:2:deepgemm splits={s}" for s in (1, 2)),
        *(f"fp8_o_proj:{i}:deepgemm" for i in (0, 1, 2)),
    ]
    return [what for what in wanted if what.split(":")[0] in ops]


def worker(args: argparse.Namespace) -> int:
    """One operation, in a process of its own: a crash there loses nothing else."""
    top = json.loads((args.out / "ceilings.json").read_text())
    name = f"{args.worker}{'.gate' if args.gate_only else ''}.json"
    try:
        result = work(args.worker, sweep=args.sweep, gate_only=args.gate_only, top=top)
    except Exception:  # noqa: BLE001
        result = {"gates": [], "rows": [], "error": traceback.format_exc()[-2000:]}
    (args.out / name).write_text(json.dumps(result))
    return 0


def show(rows: list[dict[str, Any]], best: int) -> None:
    """The fastest few of each case, anchors always."""
    for shape in dict.fromkeys((row["op"], row["shape"]) for row in rows):
        mine = [r for r in rows if (r["op"], r["shape"]) == shape]
        good = sorted((r for r in mine if "error" not in r), key=lambda r: r["median_us"])
        ours = [r for r in good if r["kind"] == "kernel"][:best]
        print(f"{shape[0]} {shape[1]}: floor {good[0]['floor_us'] if good else 0:.2f} us")
        for row in [*ours, *(r for r in good if r["kind"] == "anchor")]:
            print(
                f"   {row['median_us']:10.2f} us [{row['p10_us']:.2f}-{row['p90_us']:.2f}] "
                f"{row['tflops']:8.1f} TF {row['gbps']:8.1f} GB/s "
                f"{row['of_floor']:6.1%}  {row['who']}"
            )
        for row in mine:
            if "error" in row:
                print("   failed", row["who"], row["error"][:160].replace("\n", " "))


def drive(args: argparse.Namespace) -> int:
    """Compile and gate all operations side by side, then time them one after the other."""
    start = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ceilings.json").write_text(json.dumps({}))
    early = [_spawn(op, args.out, args, gate_only=True) for op in args.ops]
    command = [sys.executable, __file__, "--out", str(args.out), "--warm"]
    early += [subprocess.Popen([*command, what]) for what in anchors_to_warm(args.ops)]
    for process in early:
        process.wait()
    print(f"gates done after {time.monotonic() - start:.0f} s", flush=True)
    top = ceilings()
    (args.out / "ceilings.json").write_text(json.dumps(top))
    print({key: f"{value / 1e12:.3f}e12" for key, value in top.items()}, flush=True)
    report: dict[str, Any] = {
        "schema": SCHEMA, "provenance": provenance(), "ceilings": top, "gates": [], "rows": [],
        "errors": {},
    }  # fmt: skip
    for op in args.ops:
        if time.monotonic() - start > args.limit:
            report["errors"][op] = "not started: out of time"
            continue
        _spawn(op, args.out, args, gate_only=False).wait()
        _collect(report, op, args.out / f"{op}.json")
        print(f"{op} done after {time.monotonic() - start:.0f} s", flush=True)
        (args.out / "report.json").write_text(json.dumps(report, indent=1))
    for path in args.out.glob("*.json"):
        if path.name != "report.json":
            path.unlink()
    return conclude(report, args)


def _collect(report: dict[str, Any], op: str, path: Path) -> None:
    part = json.loads(path.read_text()) if path.exists() else {"error": "worker died"}
    report["gates"] += part.get("gates", [])
    report["rows"] += part.get("rows", [])
    if "error" in part:
        report["errors"][op] = part["error"]


def conclude(report: dict[str, Any], args: argparse.Namespace) -> int:
    """Print the tables and what failed; a red gate of a chosen configuration fails the run."""
    show(report["rows"], args.best)
    red = [row for row in report["gates"] if "error" in row]
    for row in red:
        print("RED", row["op"], row["config"], row["error"][:300].replace("\n", " "))
    for op, error in report["errors"].items():
        print("ERROR", op, error[-1500:])
    return 1 if report["errors"] or red else 0


def main() -> int:
    """Compile and gate all operations at once, then time them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ops", nargs="*", default=list(OPS))
    parser.add_argument("--sweep", action="store_true", help="the finalists, not only the chosen")
    parser.add_argument("--best", type=int, default=4, help="configurations to print a case")
    parser.add_argument("--limit", type=float, default=480, help="seconds after which no op starts")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    parser.add_argument("--gate-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.warm:
        return warm(args.warm)
    if args.worker:
        return worker(args)
    return drive(args)


if __name__ == "__main__":
    raise SystemExit(main())
