"""Timing on a GPU: graph replays for what is short, rotated sets for what would sit in the L2."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPLAYS = 15
GRAPH_MS = 3.0  # enough calls in one graph that a launch gap at its ends is below 1%
MAX_CALLS = 96


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one call: median, 10th and 90th percentile over `n` replays of `calls`."""

    median_us: float
    p10_us: float
    p90_us: float
    n: int
    calls: int


def _once_ms(call: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def measure(
    calls: Sequence[Callable[[], object]], replays: int = REPLAYS, *, graph: bool = True
) -> Timing:
    """Time a call by replaying a graph of many, going round the given input sets.

    Args:
        calls: The same call on different inputs; together larger than the L2 where the case's
            data comes from memory in service.
        replays: Timed replays.
        graph: Whether the calls are captured; if not, each replay launches them one by one.

    Returns:
        Time of one call.
    """
    for call in calls:
        call()
    torch.cuda.synchronize()
    one = min(_once_ms(calls[0]) for _ in range(3))
    rounds = max(1, min(int(GRAPH_MS / max(one, 1e-3)), MAX_CALLS) // len(calls))
    count = rounds * len(calls)

    def play() -> None:
        # a result lives until its set's next turn: one that a call allocates rotates like an input
        results: list[object] = [None] * len(calls)
        for i in range(count):
            results[i % len(calls)] = calls[i % len(calls)]()

    replay = play
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            play()
        replay = captured.replay
    for _ in range(2):
        replay()
    times = sorted(1e3 * _once_ms(replay) / count for _ in range(replays))
    tenth = len(times) // 10
    return Timing(statistics.median(times), times[tenth], times[-1 - tenth], replays, count)


def copy_bandwidth() -> float:
    """Bytes a second of a device-to-device copy of 4 GiB, read plus written.

    Outside a graph: the copy nodes of a graph reach two thirds of it.
    """
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    to = torch.empty_like(source)
    times = sorted(_once_ms(lambda: to.copy_(source)) for _ in range(9))
    return 2 * source.numel() / times[4] * 1e3


def memset_bandwidth(size: int = 1 << 30) -> float:
    """Bytes a second of a memset of `size` bytes: in a graph or outside, whichever is faster."""
    to = torch.empty(size, dtype=torch.uint8, device="cuda")
    return size / min(measure([to.zero_], 7, graph=g).median_us for g in (True, False)) * 1e6


def fill_bandwidth(size: int = 1 << 30) -> float:
    """Bytes a second of torch's kernel that fills `size` bytes with ones: no memset does that."""
    to = torch.empty(size, dtype=torch.uint8, device="cuda")
    return size / measure([lambda: to.fill_(1)], 7).median_us * 1e6


def fp8_rate() -> float:
    """FLOP a second of cuBLAS's 8192-cubed FP8 product on random data."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")

    def call() -> object:
        return torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16)  # noqa: SLF001

    return 2.0 * size**3 / measure([call], 7).median_us * 1e6
