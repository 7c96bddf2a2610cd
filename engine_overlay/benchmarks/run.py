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
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from report import faults
from shapes import OPS, WRITERS, Shape, of

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = "twinspark.kernel-bench/1"


def no_card() -> str:
    """Why nothing can be timed here; empty where it can."""
    import torch  # noqa: PLC0415

    if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return ""
    return "no CUDA device (or TRITON_INTERPRET=1): kernels are timed on a GPU"


def provenance() -> dict[str, Any]:
    """What produced the figures."""
    import torch  # noqa: PLC0415 - the parent process needs no GPU
    import triton  # noqa: PLC0415

    query = "--query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    try:
        card = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # a container without the driver's programs
        card = ""
    return {
        "device": torch.cuda.get_device_name(0),
        "nvidia_smi": card,
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

    memset = timing.memset_bandwidth()
    return {
        "copy_bytes_per_s": timing.copy_bandwidth(),
        "memset_bytes_per_s": memset,
        "write_bytes_per_s": max(memset, timing.fill_bandwidth()),
        "fp8_flop_per_s": timing.fp8_rate(),
    }


def floor_us(shape: Shape, top: dict[str, float]) -> float:
    """Microseconds below which a case cannot be, by what the card reaches on its own.

    What only writes is held against the fastest way to write: it may exceed a copy's bandwidth.
    """
    rate = top["copy_bytes_per_s"]
    if shape.op in WRITERS:
        rate = max(rate, top["write_bytes_per_s"])
    return max(shape.bytes / rate, shape.flop / top["fp8_flop_per_s"]) * 1e6


def _row(  # noqa: PLR0913 - what a row of the report holds
    shape: Shape,
    who: str,
    kind: str,
    calls: list[Any],
    top: dict[str, float],
    *,
    graph: bool = True,
) -> dict[str, Any]:
    import timing  # noqa: PLC0415

    try:
        timed = timing.measure(calls, graph=graph)
    except Exception as error:  # noqa: BLE001 - one failing configuration must not lose the rest
        return {
            "op": shape.op,
            "shape": shape.name,
            "who": who,
            "kind": kind,
            "error": str(error)[:300],
        }
    floor = floor_us(shape, top)
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
    from sweeps import chosen, configurations  # noqa: PLC0415

    torch.manual_seed(int(time.time()))
    result: dict[str, Any] = {"gates": [], "rows": []}
    checked: dict[Any, bool] = {}
    major, minor = torch.cuda.get_device_capability()
    card = 10 * major + minor, torch.cuda.get_device_properties(0).multi_processor_count
    for shape in of(op):
        configs = configurations(shape, *card) if sweep else [None]
        fresh = [config for config in configs if config not in checked]
        passed, rows = gate(op, fresh)
        checked |= {config: config in passed for config in fresh}
        result["gates"] += rows
        if gate_only:
            continue
        bench = cases.BENCHES[op](shape, [c for c in configs if checked[c]])
        names = bench.chosen | chosen(shape, *card)
        for who, calls in bench.kernels.items():
            row = _row(shape, who, "kernel", calls, top)
            result["rows"].append(row | {"chosen": who in names})
        for who, calls in bench.anchors.items():
            row = _row(shape, who, "anchor", calls, top, graph=who not in bench.ungraphed)
            result["rows"].append(row | {"chosen": False})
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
    """Let DeepGEMM, where it is installed, compile one anchor of one case: `op:index:anchor`."""
    import cases  # noqa: PLC0415
    import torch  # noqa: PLC0415

    if cases.deep_gemm() is None:
        return 0
    op, index, anchor = what.split(":")
    cases.BENCHES[op](of(op)[int(index)], []).anchors[anchor][0]()
    torch.cuda.synchronize()
    return 0


def anchors_to_warm(ops: Sequence[str]) -> list[str]:
    """One process an anchor that compiles: they take 10 s and more each, but side by side."""
    wanted = [
        *(f"mqa_logits:{i}:deepgemm" for i in (0, 3)),
        *(f"paged_mqa_logits:{i}:deepgemm" for i in (0, 1, 2, 3)),
        *(f"hc_prenorm_gemm:0:deepgemm splits={s}" for s in (4, 8, 16, 32, 64, 128)),
        *(f"hc_prenorm_gemm:2:deepgemm splits={s}" for s in (1, 2)),
        *(f"fp8_o_proj:{i}:deepgemm" for i in (0, 1, 2)),
    ]
    return [what for what in wanted if what.split(":")[0] in ops]


def warm_all(ops: Sequence[str], folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    """Start a process for each anchor to warm; named."""
    command = [sys.executable, __file__, "--out", str(folder), "--warm"]
    return {f"warming {what}": subprocess.Popen([*command, what]) for what in anchors_to_warm(ops)}


def failed(processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, str]:
    """Wait for processes; those that did not end well, by name."""
    codes = {name: process.wait() for name, process in processes.items()}
    return {name: f"exit status {code}" for name, code in codes.items() if code}


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
        goal = next((s.goal for s in of(shape[0]) if s.name == shape[1]), "")
        print(f"{shape[0]} {shape[1]}: floor {good[0]['floor_us'] if good else 0:.2f} us, {goal}")
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
    if reason := no_card():
        print(reason, file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "report.json").unlink(missing_ok=True)  # an older run's must not pass for this one
    with tempfile.TemporaryDirectory() as folder:
        report = measured(args, Path(folder))
    return conclude(report, args)


def measured(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The report, also left in `args.out` after each operation; workers talk through `folder`."""
    start = time.monotonic()
    (folder / "ceilings.json").write_text(json.dumps({}))
    early = {f"gating {op}": _spawn(op, folder, args, gate_only=True) for op in args.ops}
    errors = failed(early | warm_all(args.ops, folder))
    print(f"gates done after {time.monotonic() - start:.0f} s", flush=True)
    top = ceilings()
    (folder / "ceilings.json").write_text(json.dumps(top))
    print({key: f"{value / 1e12:.3f}e12" for key, value in top.items()}, flush=True)
    report: dict[str, Any] = {
        "schema": SCHEMA, "provenance": provenance(), "ceilings": top, "gates": [], "rows": [],
        "errors": errors,
    }  # fmt: skip
    for op in args.ops:
        part = _part(report, f"gating {op}", folder / f"{op}.gate.json")
        # the workers that time repeat the green ones, on inputs of their own
        report["gates"] += [row for row in part["gates"] if "error" in row]
    for op in args.ops:
        if time.monotonic() - start > args.limit:
            report["errors"][op] = "not started: out of time"
        else:
            report["errors"] |= failed({op: _spawn(op, folder, args, gate_only=False)})
            part = _part(report, op, folder / f"{op}.json")
            report["gates"] += part["gates"]
            report["rows"] += part["rows"]
            print(f"{op} done after {time.monotonic() - start:.0f} s", flush=True)
        (args.out / "report.json").write_text(json.dumps(report, indent=1))
    return report


def _part(report: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """What a worker left; what went wrong there goes into the report."""
    if not path.exists():
        report["errors"].setdefault(name, "the worker left nothing")
        return {"gates": [], "rows": []}
    part: dict[str, Any] = json.loads(path.read_text())
    if "error" in part:
        report["errors"][name] = part["error"]
    return part


def conclude(report: dict[str, Any], args: argparse.Namespace) -> int:
    """Print the tables and what failed or is missing; anything of that fails the run."""
    show(report["rows"], args.best)
    wrong = faults(report, args.ops)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Compile and gate all operations at once, then time them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), metavar="OP")
    parser.add_argument("--sweep", action="store_true", help="the finalists, not only the chosen")
    parser.add_argument("--best", type=int, default=4, help="configurations to print a case")
    parser.add_argument("--limit", type=float, default=480, help="seconds after which no op starts")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    parser.add_argument("--gate-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.warm:
        return warm(args.warm)
    if args.worker:
        return worker(args)
    return drive(args)


if __name__ == "__main__":
    raise SystemExit(main())
