"""Indexer logits and top-k in one against logits and then the stock top-k, in turns, on a GPU.

Gates first: every fused configuration at every shape against the logits that `mqa_logits` writes.
Where vLLM's extension can be imported its `top_k_per_row_prefill` is the stock top-k, else
`torch.topk`, and the report says which.

To repeat: PYTHONPATH=engine_overlay/src python3 engine_overlay/benchmarks/fused_topk.py --out FILE
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import timing
import torch
from cases_common import CUDA, NAN, RedGateError, deep_gemm
from cases_indexer import mqa_inputs
from run import provenance
from shapes import Shape, of

from twinspark.kernels import mqa_logits, mqa_topk
from twinspark.kernels.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], Any]
    Args = tuple[torch.Tensor, ...]
    TopK = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]

TOPK = mqa_topk.TOPK
ROUNDS, REPLAYS = 5, 5
GATE_LIMIT = 1e-5  # of a row's largest logit: two kernels may round a sum differently
RISING_SHAPE = 1  # where keys in rising order are timed too


@dataclass(frozen=True, slots=True)
class Fused:
    """One way to run the fused kernel; `room` and `shares` as in `mqa_topk.launch`."""

    config: Config
    room: int | None = None
    more_shares: int = 0

    @property
    def name(self) -> str:
        """For tables."""
        room = f" room {self.room}" if self.room else ""
        return f"fused {self.config.key}{room}" + (" one share more" if self.more_shares else "")


BASE = mqa_topk.SM90
FUSED = (
    Fused(BASE),
    Fused(BASE, room=2048),
    Fused(BASE, more_shares=1),
    Fused(replace(BASE, k=2048)),
    Fused(Config(m=2, n=128, k=1024, warps=4, stages=2, tma=True)),
    Fused(Config(m=2, n=64, k=1024, warps=4, stages=3, tma=True, lean=True)),
    Fused(Config(m=4, n=64, k=1024, warps=8, stages=3)),
    Fused(Config(m=4, n=128, k=1024, warps=8, stages=2, tma=True, lean=True)),
)


def stock_topk() -> tuple[str, TopK]:
    """The stock top-k as the engine calls it, with its name; it writes [M, 512] int32."""
    for name in ("vllm._C_stable_libtorch", "vllm._C"):
        with suppress(ImportError, OSError, RuntimeError):
            import_module(name)
    if not hasattr(torch.ops._C, "top_k_per_row_prefill"):  # noqa: SLF001 - where vLLM puts it
        return "torch.topk", lambda logits, _ks, _ke: torch.topk(logits, TOPK, sorted=False)
    op = torch.ops._C.top_k_per_row_prefill  # noqa: SLF001

    def call(logits: torch.Tensor, ks: torch.Tensor, ke: torch.Tensor) -> torch.Tensor:
        out = torch.empty((logits.shape[0], TOPK), dtype=torch.int32, device=CUDA)
        op(logits, ks, ke, out, logits.shape[0], logits.stride(0), logits.stride(1), TOPK)
        return out

    return "top_k_per_row_prefill", call


def any_deep_gemm() -> Any:  # noqa: ANN401 - a module without types
    """DeepGEMM on its own or vLLM's copy of it, or None."""
    if module := deep_gemm():
        return module
    with suppress(ImportError, OSError, RuntimeError):
        return import_module("vllm.third_party.deep_gemm")
    return None


def fused_call(args: Args, how: Fused, processors: int) -> Call:
    """A call of one fused configuration."""
    rows, keys = args[0].shape[0], args[1].shape[0]
    shares = mqa_topk.splits(rows, keys, how.config, processors) + how.more_shares
    return partial(
        mqa_topk.launch, *args, config=how.config, processors=processors, shares=shares,
        room=how.room,
    )  # fmt: skip


def gate(out: torch.Tensor, logits: torch.Tensor, ks: torch.Tensor, ke: torch.Tensor) -> float:
    """How far the largest key left out is above the smallest chosen, over the row's largest.

    Raises:
        RedGateError: Further than rounding explains, or not as many distinct keys as there are.
    """
    worst = 0.0
    n = torch.arange(logits.shape[1], device=logits.device)
    for at in range(0, out.shape[0], 128):
        part = slice(at, at + 128)
        row, first, keys = logits[part], ks[part, None], out[part].long()
        inside = (n >= first) & (n < ke[part, None])
        chosen = torch.zeros((row.shape[0], row.shape[1] + 1), dtype=torch.bool, device=row.device)
        chosen.scatter_(1, torch.where(keys >= 0, keys + first, row.shape[1]), value=True)
        chosen = chosen[:, :-1]
        count = inside.sum(1).clamp(max=TOPK)
        if not bool(((chosen & inside).sum(1) == count).all()):
            raise RedGateError("not as many distinct keys inside the bounds as there are")
        if not bool(((keys >= 0).sum(1) == count).all()):
            raise RedGateError("a key twice, or one outside the bounds")
        low = torch.where(chosen, row, float("inf")).amin(1)
        high = torch.where(inside & ~chosen, row, float("-inf")).amax(1)
        size = torch.where(inside, row.abs(), 0.0).amax(1).clamp_min(1e-30)
        worst = max(worst, float(((high - low) / size).clamp_min(0.0).max()))
    if not worst <= GATE_LIMIT:
        raise RedGateError(f"a key left out is {worst:.3e} of the row's largest above one chosen")
    return worst


def written(args: Args) -> torch.Tensor:
    """[M, N] logits of the portable kernel, NaN where it writes nothing."""
    rows, keys = args[0].shape[0], args[1].shape[0]
    out = torch.full((rows, -(-keys // 256) * 256), NAN, device=CUDA)[:, :keys]
    return mqa_logits.launch(*args, config=mqa_logits.SM90, processors=132, out=out)


def hard_inputs() -> dict[str, Args]:
    """Small cases that random data does not reach: moving starts, rising, equal and short rows."""
    args = mqa_inputs(67, 40_000, 160_000)
    ks = torch.randint(0, 30_000, (67,), dtype=torch.int32, device=CUDA)
    ke = (ks + torch.randint(0, 12_000, (67,), dtype=torch.int32, device=CUDA)).clamp(max=40_000)
    q, k, scale, weights, _, full = args
    q = torch.zeros_like(q.float())
    q[:, 0, 0] = 1
    ones = torch.ones_like(k.float()).to(k.dtype)
    weights = torch.zeros_like(weights)
    weights[:, 0] = torch.linspace(-1, 1, 67, device=CUDA).sign()
    start = torch.zeros_like(ks)
    rising = torch.arange(40_000, device=CUDA, dtype=torch.float32)
    return {
        "starts": (*args[:4], ks, ke.int()),
        "rising": (q.to(k.dtype), ones, rising, weights, start, full),
        "equal": (q.to(k.dtype), ones, torch.ones_like(scale), weights, start, full),
    }


def gates(
    shape_args: dict[str, Args], processors: int, fused: tuple[Fused, ...] = FUSED
) -> tuple[list[Fused], list[dict[str, Any]]]:
    """The configurations that are right everywhere, and what each gate said."""
    rows: list[dict[str, Any]] = []
    bad: set[Fused] = set()
    for name, args in shape_args.items():
        logits = written(args)
        for how in fused:
            row: dict[str, Any] = {"case": name, "who": how.name}
            try:
                row["above_edge"] = gate(fused_call(args, how, processors)(), logits, *args[4:])
            except Exception as error:  # noqa: BLE001 - one configuration must not lose the rest
                row["error"] = f"{type(error).__name__}: {error}"[:300]
                bad.add(how)
            rows.append(row)
        del logits
    return [how for how in fused if how not in bad], rows


def contenders(args: Args, good: list[Fused], processors: int) -> dict[str, Call]:
    """What is timed at one shape, by name."""
    q, k, k_scale, weights, ks, ke = args
    rows, keys = q.shape[0], k.shape[0]
    out = torch.full((rows, -(-keys // 256) * 256), float("-inf"), device=CUDA)[:, :keys]
    chosen, _ = mqa_logits.dispatch(*args)
    portable, _ = mqa_logits.dispatch(*args, config=mqa_logits.SM90)
    name, topk = stock_topk()
    table: dict[str, Call] = {
        "logits": lambda: chosen(*args, out=out),
        f"logits + {name}": lambda: topk(chosen(*args, out=out), ks, ke),
        "portable logits": lambda: portable(*args, out=out),
        f"portable logits + {name}": lambda: topk(portable(*args, out=out), ks, ke),
    }
    if module := any_deep_gemm():

        def theirs() -> torch.Tensor:  # looked up in the call: vLLM's copy may lack it
            return module.fp8_mqa_logits(q, (k, k_scale), weights, ks, ke, clean_logits=False)

        table["deepgemm logits"] = theirs
        table[f"deepgemm logits + {name}"] = lambda: topk(theirs(), ks, ke)
    table |= {how.name: fused_call(args, how, processors) for how in good}
    if good:
        table |= halves(args, good[0], processors)
    return table


def halves(args: Args, how: Fused, processors: int) -> dict[str, Call]:
    """The fused call's two kernels one by one."""
    rows, keys = args[0].shape[0], args[1].shape[0]
    shares = mqa_topk.splits(rows, keys, how.config, processors)
    room = how.room or mqa_topk.capacity(how.config, TOPK)
    collect = partial(
        mqa_topk.collect, *args, topk=TOPK, config=how.config, shares=shares, room=room
    )
    found, counts = collect()
    out = torch.empty((rows, TOPK), dtype=torch.int32, device=CUDA)
    return {
        f"of it collect, {shares} shares": collect,
        "of it merge": lambda: mqa_topk.merge(found, counts, args[4], args[5], keys, out),
    }


def turns(table: dict[str, Call]) -> list[dict[str, Any]]:
    """Each contender once a round; medians over the rounds, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in table}
    errors: dict[str, str] = {}
    for _ in range(ROUNDS):
        for name, call in table.items():
            if name in errors:
                continue
            try:
                times[name].append(timing.measure([call], REPLAYS).median_us)
            except Exception as error:  # noqa: BLE001 - one contender must not lose the rest
                errors[name] = f"{type(error).__name__}: {error}"[:300]
    return [
        {"who": name, "error": errors[name]}
        if name in errors
        else {
            "who": name,
            "us": round(statistics.median(of_it), 2),
            "range_us": [round(min(of_it), 2), round(max(of_it), 2)],
            "rounds_us": [round(one, 2) for one in of_it],
        }
        for name, of_it in times.items()
    ]


def workspace(shape: Shape, how: Fused, processors: int) -> dict[str, int]:
    """Bytes beside inputs and output: of [M, N] logits, and of the fused call."""
    rows, keys = shape.sizes["rows"], shape.sizes["keys"]
    shares = mqa_topk.splits(rows, keys, how.config, processors) + how.more_shares
    room = how.room or mqa_topk.capacity(how.config, TOPK)
    blocks = -(-rows // how.config.m)
    own = blocks * shares * how.config.m * how.config.k * 4 + rows * shares * (room * 8 + 4)
    return {"logits": rows * keys * 4, "fused": own}


def show(case: str, rows: list[dict[str, Any]]) -> None:
    """One case's rows; what is saved is against our own logits and the stock top-k."""
    times = {row["who"]: row["us"] for row in rows if "us" in row}
    base = next((us for who, us in times.items() if who.startswith("logits +")), None)
    print(case)
    for row in rows:
        if "error" in row:
            print(f"   failed       {row['who']}: {row['error'][:120]}")
            continue
        low, high = row["range_us"]
        ratio = f"{base / row['us']:5.2f}x" if base else ""
        print(f"   {row['us']:9.1f} us ({low:.1f}-{high:.1f}) {ratio} {row['who']}", flush=True)


def cases_of(shapes: tuple[Shape, ...]) -> dict[str, tuple[Shape, Args]]:
    """Inputs of every shape, and once with keys whose scales rise: each run brings better ones."""
    found: dict[str, tuple[Shape, Args]] = {}
    for index, shape in enumerate(shapes):
        sizes = shape.sizes
        args = mqa_inputs(sizes["rows"], sizes["keys"], sizes["context"])
        found[shape.name] = (shape, args)
        if index == RISING_SHAPE:
            rising = args[2].sort().values
            found[f"{shape.name} rising scales"] = (shape, (*args[:2], rising, *args[3:]))
    return found


def main() -> int:
    """Gate, then time case after case; write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=110, help="seconds; later cases are left")
    parser.add_argument("--fused", type=int, nargs="*", help="indices into FUSED; default: all")
    args = parser.parse_args()
    fused = FUSED if args.fused is None else tuple(FUSED[index] for index in args.fused)
    start = time.monotonic()
    torch.manual_seed(0)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    cases = cases_of(of("mqa_logits"))
    everything = hard_inputs() | {name: inputs for name, (_, inputs) in cases.items()}
    good, said = gates(everything, processors, fused)
    red = [row for row in said if "error" in row]
    print(f"{len(said) - len(red)} of {len(said)} gates green, {time.monotonic() - start:.0f} s")
    for row in red:
        print("RED", row["case"], row["who"], row["error"], flush=True)
    report: dict[str, Any] = {
        "schema": "twinspark.fused-topk/1",
        "provenance": provenance()
        | {"repeat": "python3 engine_overlay/benchmarks/fused_topk.py --out FILE"},
        "stock_topk": stock_topk()[0], "topk": TOPK, "rounds": ROUNDS, "replays": REPLAYS,
        "gates": said, "rows": [], "left": [],
    }  # fmt: skip
    for name, (shape, inputs) in cases.items():
        if time.monotonic() - start > args.limit:
            report["left"].append(name)
            continue
        rows = turns(contenders(inputs, good, processors))
        show(name, rows)
        space = workspace(shape, FUSED[0], processors)
        report["rows"] += [{"case": name, "workspace_bytes": space} | row for row in rows]
        args.out.write_text(json.dumps(report, indent=1))
    print(f"{time.monotonic() - start:.0f} s; left: {report['left']}")
    return 1 if red or not report["rows"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
