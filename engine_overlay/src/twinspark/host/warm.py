"""Compile in the deploy what would else be compiled inside a request that somebody waits for.

FlashInfer 0.6.16 has no prebuilt kernels for SM120: its sparse MLA is built by nvcc at first use,
minutes on GB10. Triton kernels are compiled by the engine's warm-up at its start, the overlay's own
by `twinspark.patches.graphs.first_use`; into the same cache, so once a release.
Runs in the release's Python, with the engine's rendered environment, as the engine's user.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from twinspark.host import note
from twinspark.host.__main__ import main
from twinspark.host.environment import take_over

# module:function that gives a FlashInfer JIT spec; what vLLM 0.27.1 calls for this model on sm_12x
# (both are in the locked flashinfer-python 0.6.16.post3: flashinfer/jit/mla.py:35, sampling.py:21)
STEPS = (
    "flashinfer.jit.mla:gen_sparse_mla_sm120_module",
    "flashinfer.jit.sampling:gen_sampling_module",
)
TICK_SECONDS = 10.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Step:
    """How one compilation went: `built`, `failed`, or `not needed` where there is no toolkit."""

    name: str
    state: str
    seconds: float
    detail: str = ""


def size(root: Path) -> tuple[int, float]:
    """Return the number of files below a folder and their size in MiB."""
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes) / MIB


def tell(name: str, cache: Path, over: threading.Event) -> None:
    """Print progress until `over` is set."""
    start = time.monotonic()
    while not over.wait(TICK_SECONDS):
        files, mib = size(cache)
        spent = time.monotonic() - start
        print(f"warm: {name}: {spent:.0f} s, {files} files, {mib:.0f} MiB cached", flush=True)


def build(name: str, cache: Path) -> Step:
    """Build one JIT module, with progress on standard output."""
    module, function = name.split(":")
    start, over = time.monotonic(), threading.Event()
    teller = threading.Thread(target=tell, args=(name, cache, over), daemon=True)
    teller.start()
    try:
        getattr(import_module(module), function)().build_and_load()
    except ModuleNotFoundError as error:
        # a CPU build has no FlashInfer; where a toolkit is set, a missing module is a wrong release
        state = "failed" if "CUDA_HOME" in os.environ else "not needed"
        return Step(name, state, time.monotonic() - start, str(error))
    except Exception as error:  # noqa: BLE001 (a compiler's failure is whatever FlashInfer raises)
        return Step(name, "failed", time.monotonic() - start, f"{type(error).__name__}: {error}")
    finally:
        over.set()
        teller.join()
    return Step(name, "built", time.monotonic() - start)


def module_function(text: str) -> str:
    """Return the name of a step, as argparse asks for it.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    module, colon, function = text.partition(":")
    if not (module and colon and function) or ":" in function:
        raise argparse.ArgumentTypeError(f"{text!r} is not module:function")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--env", default="-", help="the engine's environment, - for standard input")
    parser.add_argument("--cache", type=Path, required=True, help="the cache root")
    parser.add_argument("--release", required=True, help="id of the release that this is for")
    parser.add_argument(
        "--step",
        action="append",
        type=module_function,
        help="module:function (default: the model's)",
    )


def run(args: argparse.Namespace) -> int:
    """Compile once a release: 0 all is built or not needed, 1 a compilation failed.

    Raises:
        OSError: The environment cannot be read, or the cache not be written.
    """
    steps = tuple(args.step or STEPS)
    path, warm = args.cache / "warm.json", {"release": args.release, "steps": list(steps)}
    if note.read(path) == warm:
        print(f"unchanged: release {args.release} is warm")
        return 0
    take_over(args.env)
    done: list[Step] = []
    for name in steps:
        step = build(name, args.cache)
        done.append(step)
        said = f"warm: {step.name}: {step.state} in {step.seconds:.0f} s {step.detail}"
        print(said.rstrip(), flush=True)
    if any(step.state == "failed" for step in done):
        return 1
    note.write(path, warm)
    print(f"compiled: {sum(step.state == 'built' for step in done)} of {len(done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(["warm", *sys.argv[1:]]))
