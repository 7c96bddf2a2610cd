"""Compile every configuration for sm_121a on a machine without a GPU, and table what each takes.

Triton compiles for any target it is told; ptxas comes with it. Nothing runs: the label is rendered.
To repeat, in an environment with the engine's torch and Triton 3.7.1:
PYTHONPATH=engine_overlay/src python3 engine_overlay/benchmarks/sm121.py --write
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from report import between
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from twinspark.kernels import (
    c128a_metadata,
    dispatch,
    fp8_o_proj,
    hc_prenorm_gemm,
    mqa_logits,
    mqa_topk,
    paged_mqa_logits,
    zero_rows,
)
from twinspark.kernels.c128a_metadata.kernel import c128a_metadata_kernel
from twinspark.kernels.config import (
    SM121_SHARED_BYTES,
    Resources,
    fits,
    resident_warps,
    select_sm121,
    sm121_table,
    to_json,
)
from twinspark.kernels.fp8_o_proj.kernel import fp8_o_proj_few_kernel, fp8_o_proj_kernel
from twinspark.kernels.hc_prenorm_gemm.kernel import hc_prenorm_gemm_kernel
from twinspark.kernels.mqa_logits.kernel import mqa_logits_kernel
from twinspark.kernels.mqa_topk.kernel import mqa_topk_collect_kernel
from twinspark.kernels.paged_mqa_logits.kernel import paged_mqa_logits_kernel
from twinspark.kernels.zero_rows.kernel import zero_rows_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinspark.kernels.config import Config

TABLE = Path(mqa_logits.__file__).parent.parent / "sm121_resources.json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"
BEGIN, END = "<!-- sm121: begin -->", "<!-- sm121: end -->"
CAPABILITY = 121
PROCESSORS = 48  # of a GB10
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Target:
    """Stands in for Triton's CUDA driver where there is none: enough to compile, not to launch."""

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        """The only device there seems to be."""
        return 0

    def get_current_stream(self, _device: int | None = None) -> int:
        """No stream: nothing is launched."""
        return 0


@contextmanager
def compiling(kernels: tuple[Any, ...]) -> Iterator[list[Any]]:
    """Make launches compile only; yields the list that what they compiled goes to."""
    compiled: list[Any] = []

    def only_compile(kernel: Any) -> Callable[..., Any]:  # noqa: ANN401 - Triton's class
        run = kernel.run

        def wrapped(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            result = run(*args, **(options | {"warmup": True}))
            compiled.append(result)
            return result

        return wrapped

    driver.set_active(Target())
    originals = [kernel.run for kernel in kernels]
    try:
        for kernel in kernels:
            kernel.run = only_compile(kernel)
            kernel.device_caches.clear()  # or a second time would compile nothing
        yield compiled
    finally:
        for kernel, run in zip(kernels, originals, strict=True):
            kernel.run = run
        driver._active = None  # noqa: SLF001 - `reset_active` insists on a GPU


KERNELS = (
    mqa_logits_kernel,
    paged_mqa_logits_kernel,
    hc_prenorm_gemm_kernel,
    fp8_o_proj_kernel,
    fp8_o_proj_few_kernel,
    zero_rows_kernel,
    c128a_metadata_kernel,
    mqa_topk_collect_kernel,
)


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def launch(op: str, config: Config) -> None:
    """Launch an operation at serving shapes; tensors are untouched host memory."""
    i32, i64, u8 = torch.int32, torch.int64, torch.uint8
    if op in {"mqa_logits", "mqa_topk"}:
        bounds = _zeros(512, dtype=i32)
        q, k = _zeros(512, 64, 128, dtype=FP8), _zeros(4096, 128, dtype=FP8)
        args = (q, k, _zeros(4096), _zeros(512, 64), bounds, bounds)
        if op == "mqa_logits":
            mqa_logits.launch(*args, config=config, processors=PROCESSORS)
        else:
            room = mqa_topk.capacity(config, mqa_topk.TOPK)
            mqa_topk.collect(*args, topk=mqa_topk.TOPK, config=config, shares=1, room=room)
    elif op == "paged_mqa_logits":
        cache = _zeros(64, 8640, dtype=u8).as_strided((64, 64, 1, 132), (8640, 132, 132, 1))
        q, table = _zeros(72, 1, 64, 128, dtype=FP8), _zeros(72, 4096, dtype=i32)
        args = (q, cache, _zeros(72, 64), _zeros(72, 1, dtype=i32), table, 4096)
        paged_mqa_logits.launch(*args, config=config, processors=PROCESSORS)
    elif op == "hc_prenorm_gemm":
        x, fn = _zeros(128, 16_384, dtype=torch.bfloat16), _zeros(24, 16_384)
        hc_prenorm_gemm.launch(x, fn, _zeros(16, 128, 24), _zeros(16, 128), config=config)
    elif op == "fp8_o_proj":
        x = _zeros(4, 128, 4096, dtype=FP8).transpose(0, 1)
        scale = _zeros(4, 32, 128).permute(2, 0, 1)
        weight, out = _zeros(4, 1024, 4096, dtype=FP8), _zeros(128, 4, 1024, dtype=torch.bfloat16)
        fp8_o_proj.launch(x, scale, weight, _zeros(4, 8, 32), out, config=config)
    elif op == "zero_rows":
        zero_rows.launch(_zeros(4, 1_002_240, dtype=u8), _zeros(4, dtype=i64), config=config)
    else:
        rows, requests = _zeros(64, 8192, dtype=i32), _zeros(64, dtype=i32)
        positions, table = _zeros(64, dtype=i64), _zeros(64, 4096, dtype=i32)
        args = (positions, 128, 8, requests, table, 2, positions, rows, requests, rows, 8192)
        c128a_metadata.launch(*args, config=config)


def resources(op: str, config: Config, compiled: Any, said: str) -> Resources:  # noqa: ANN401 - Triton's class
    """What one compiled kernel takes.

    Args:
        op: Operation.
        config: Configuration.
        compiled: Triton's kernel.
        said: What ptxas said when Triton made its machine code.

    Raises:
        ValueError: It was not compiled for sm_121a, or ptxas did not speak of one kernel.
    """
    arch = re.search(r"\.target\s+(\w+)", compiled.asm["ptx"])
    if arch is None or arch.group(1) != "sm_121a":
        raise ValueError(f"{op} {config.key}: compiled for {arch and arch.group(1)}, not sm_121a")
    stacks = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said
    )
    used = re.findall(r"Used (\d+) registers", said)
    if len(stacks) != 1 or len(used) != 1:  # of two kernels nobody could tell whose is whose
        raise ValueError(f"{op} {config.key}: ptxas said {said!r}")
    local, stores, loads = map(int, stacks[0])
    return Resources(
        op=op,
        config=config,
        registers=int(used[0]),
        shared=int(compiled.metadata.shared),
        spills=stores + loads,
        local=local,
    )


def measure(op: str, config: Config) -> Resources | None:
    """Compile one configuration; None where Triton or ptxas refuses it (too few registers).

    Triton's own call of ptxas is listened to: its options change what a kernel spills, so that a
    second call with others would speak of a kernel that never runs.
    """
    from triton.runtime.errors import OutOfResources, PTXASError  # noqa: PLC0415 - moved about

    said = io.StringIO()
    with compiling(KERNELS) as compiled, knobs.nvidia.scope(), knobs.compilation.scope():
        knobs.nvidia.dump_ptxas_log = True
        knobs.compilation.always_compile = True  # what lies in the cache is silent
        try:
            with redirect_stdout(said):
                launch(op, config)
        except (OutOfResources, PTXASError) as error:
            print(f"  {op} {config.key}: {str(error).strip().splitlines()[-1][:100]}")
            return None
    return resources(op, config, compiled[-1], said.getvalue())


CONFIGS: dict[str, tuple[Config, ...]] = {
    "mqa_logits": mqa_logits.CONFIGS,
    "paged_mqa_logits": paged_mqa_logits.CONFIGS,
    "hc_prenorm_gemm": hc_prenorm_gemm.CONFIGS,
    "fp8_o_proj": fp8_o_proj.CONFIGS,
    "zero_rows": zero_rows.CONFIGS,
    "c128a_metadata": c128a_metadata.CONFIGS,
    "mqa_topk": mqa_topk.CONFIGS,
}


def choices() -> list[tuple[str, str, Config]]:
    """What `choose` takes on a GB10, case by case: operation, case, configuration."""
    where = dispatch.Target(CAPABILITY, PROCESSORS)
    sizes = (6, 72, 8192)
    return [
        ("mqa_logits", "any", mqa_logits.choose(where)[0]),
        *(
            ("paged_mqa_logits", f"{rows} rows a request", paged_mqa_logits.choose(where, rows)[0])
            for rows in (1, 6)
        ),
        *(("hc_prenorm_gemm", f"M={m}", hc_prenorm_gemm.choose(where, m, 1)[0]) for m in sizes),
        *(("fp8_o_proj", f"T={t}", fp8_o_proj.choose(where, t)[0]) for t in sizes),
        ("zero_rows", "any", zero_rows.choose(where)[0]),
        ("c128a_metadata", "any", c128a_metadata.choose(where)[0]),
        ("mqa_topk", "any", mqa_topk.choose(where)[0]),
    ]


def document(text: str) -> str:
    """The document with its table of choices renewed from the committed table."""
    known = {(row.op, row.config): row for row in sm121_table()}
    lines = [
        "| op | case | configuration | registers | shared, B | spilled | local | resident warps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for op, case, config in choices():
        row = known[op, config]
        lines.append(
            f"| {op} | {case} | `{config.key}` | {row.registers} | {row.shared:,} | {row.spills} "
            f"| {row.local} | {resident_warps(row)} |"
        )
    return between(text, BEGIN, END, "\n".join(lines))


def summary(table: list[Resources]) -> list[str]:
    """What fits of each operation, in lines."""
    lines = []
    for op, configs in CONFIGS.items():
        good = [row for row in table if row.op == op and fits(row)]
        lines.append(
            f"{op}: {len(good)} of {len(configs)} configurations fit {SM121_SHARED_BYTES} B"
        )
        lines += [
            f"  {row.config.key:28} {row.registers:4} registers {row.shared:7} B shared"
            for row in sorted(good, key=lambda row: row.config.key)
        ]
    return lines


def chosen() -> list[str]:
    """What is chosen from the committed table, in lines."""
    return [f"{op}, {case}: {config.key}" for op, case, config in choices()]


def main() -> int:
    """Print or write the table; fail where an operation has no configuration that fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name} into the package")
    args = parser.parse_args()
    start = time.monotonic()
    work = [(op, config) for op, configs in CONFIGS.items() for config in configs]
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(measure, *zip(*work, strict=True)))
    table = [row for row in rows if row]
    print("\n".join(summary(table)), flush=True)
    for op in CONFIGS:
        select_sm121(table, op)  # raises where nothing fits
    if args.write:
        TABLE.write_text(to_json(table), encoding="utf-8")
        sm121_table.cache_clear()
        DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    elif TABLE.read_text(encoding="utf-8") != to_json(table):
        print(f"{TABLE.name} says otherwise: --write renews it")
    print("chosen from the committed table:", *chosen(), sep="\n  ")
    print(f"{len(table)} rows, {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
