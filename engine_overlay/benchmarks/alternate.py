"""What dispatch takes against the best anchor, turn by turn, so that the card's drift hits both.

A sweep times one after the other; under the power cap two long runs of one kernel can differ by a
tenth. Here each round times anchor, ours, anchor, and the ratio is that of a round.

To repeat: PYTHONPATH=engine_overlay/src python3 engine_overlay/benchmarks/alternate.py --out FILE
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from run import failed, no_card, provenance, warm_all
from shapes import Shape, of

from twinspark.kernels import hc_prenorm_gemm
from twinspark.kernels.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPS = ("mqa_logits", "paged_mqa_logits", "hc_prenorm_gemm", "fp8_o_proj")
ROUNDS, REPLAYS = 7, 5
# for the one share into which the engine cuts many rows on a card of many multiprocessors
UNSPLIT = (
    hc_prenorm_gemm.SM90_UNSPLIT,
    Config(m=64, n=32, k=128, warps=8, stages=4, tma=True),
    Config(m=64, n=32, k=256, warps=8, stages=3, tma=True),
)
Calls = list["Callable[[], Any]"]


def rounds(ours: Calls, theirs: Calls, shape: Shape) -> dict[str, Any]:
    """Both kernels in turn; microseconds, and theirs over ours in each round."""
    import timing  # noqa: PLC0415 - imports torch

    table: dict[str, list[float]] = {"ours_us": [], "anchor_us": [], "ratio": []}
    for _ in range(ROUNDS):
        before, mine, after = (
            timing.measure(calls, REPLAYS).median_us for calls in (theirs, ours, theirs)
        )
        table["ours_us"].append(round(mine, 3))
        table["anchor_us"].append(round((before + after) / 2, 3))
        table["ratio"].append(round((before + after) / 2 / mine, 4))
    middle = statistics.median(table["ours_us"])
    return {
        "ratio": statistics.median(table["ratio"]),
        "ratio_range": [min(table["ratio"]), max(table["ratio"])],
        "ours_us": middle,
        "anchor_us": statistics.median(table["anchor_us"]),
        "tflops": round(shape.flop / middle / 1e6, 1),
        "rounds": table,
    }


def sm_90() -> bool:
    """Whether this is the card that `UNSPLIT` was chosen for: others may lack the memory for it."""
    import torch  # noqa: PLC0415

    return bool(torch.cuda.get_device_capability() == (9, 0))


def no_anchor() -> str:
    """Why nothing can be compared here; empty where it can."""
    if reason := no_card():
        return reason
    from cases_common import deep_gemm  # noqa: PLC0415 - imports torch

    return (
        "" if deep_gemm() else "no DeepGEMM (`import deep_gemm`): it is what ours is held against"
    )


def pairs(shape: Shape) -> list[tuple[str, str, Calls, Calls]]:
    """What to compare at one shape: names and calls of ours and of the anchor."""
    import cases  # noqa: PLC0415 - imports torch
    import timing  # noqa: PLC0415

    def fastest(table: dict[str, Calls], *, deepgemm: bool) -> str:
        names = [name for name in table if not deepgemm or name.startswith("deepgemm")]
        return min(names, key=lambda name: timing.measure(table[name], 3).median_us)

    many = shape.op == "hc_prenorm_gemm" and shape.sizes["rows"] > hc_prenorm_gemm.FEW_ROWS
    unsplit = UNSPLIT if many and sm_90() else ()
    configs: list[Config | None] = [None, *unsplit]
    for config in configs:
        cases.GATES[shape.op](config)
    bench = cases.BENCHES[shape.op](shape, configs)
    chosen = {name: bench.kernels[name] for name in bench.chosen}
    mine, theirs = fastest(chosen, deepgemm=False), fastest(bench.anchors, deepgemm=True)
    found = [(mine, theirs, chosen[mine], bench.anchors[theirs])]
    name = "deepgemm splits=1"
    found += [
        (f"{config.key} splits=1", name, bench.kernels[f"{config.key} splits=1"],
         bench.anchors[name])
        for config in unsplit
    ]  # fmt: skip
    return found


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """The report, also left in `args.out` after each case."""
    start = time.monotonic()
    report: dict[str, Any] = {
        "schema": "twinspark.kernel-turns/1",
        "provenance": provenance()
        | {"repeat": "python3 engine_overlay/benchmarks/alternate.py --out FILE"},
        "rounds": ROUNDS, "replays": REPLAYS, "rows": [], "left": [],
        "errors": failed(warm_all(OPS, args.out.parent)),
    }  # fmt: skip
    for shape in (shape for op in OPS for shape in of(op)):
        if time.monotonic() - start > args.limit:
            report["left"].append([shape.op, shape.name])
        else:
            for mine, theirs, *calls in pairs(shape):
                row = rounds(*calls, shape)
                report["rows"].append(
                    {"op": shape.op, "shape": shape.name, "ours": mine, "anchor": theirs} | row
                )
                low, high = row["ratio_range"]
                times = f"{row['ours_us']:.2f} us, {row['anchor_us']:.2f}"
                said = f"{row['ratio']:.3f}x ({low:.3f}-{high:.3f}) {times} {mine[:24]}"
                print(f"{shape.op} {shape.name}: {said}", flush=True)
        args.out.write_text(json.dumps(report, indent=1))
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Warm DeepGEMM side by side, then compare case after case; fail if any was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=400, help="seconds; later cases are left")
    args = parser.parse_args(argv)
    if reason := no_anchor():
        print(reason, file=sys.stderr)
        return 1
    args.out.parent.mkdir(parents=True, exist_ok=True)
    report = compare(args)
    wrong = [f"{name}: {text}" for name, text in report["errors"].items()]
    wrong += [f"{op} {name}: left out, out of time" for op, name in report["left"]]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
