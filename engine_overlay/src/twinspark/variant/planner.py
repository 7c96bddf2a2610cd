"""How much KV one rank needs, by the rules of the engine's own start-up check.

The engine refuses to start when one request of `max_model_len` does not fit the pool. What it
charges is not the context alone: the sliding-window layers and the compressors' states hold every
token that is in flight, and their pages cover 4 to 64 tokens where the compressed cache's cover
256. So tokens in flight dominate, and the step's token budget is the cheap lever (vLLM 0.27.1:
v1/core/kv_cache_utils.py:1592-1755, 1890-1945; v1/kv_cache_interface.py:590-618, 886-898;
config/vllm.py:540-561). The arithmetic here repeats it; tests/env compares it with the wheel's own
functions.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30

# Physical page sizes in bytes at block 256, aligned to 576
# (models/deepseek_v4/attention.py:671,709; 584 bytes a token in the main record, 132 in the
# indexer's).
PAGE_C4A = 37_440
PAGE_INDEXER = 8_640
PAGE_C128A = 1_728
LAYER_TUPLE_BYTES = PAGE_C4A + PAGE_INDEXER + PAGE_C128A

BLOCK = 256


@dataclass(frozen=True, slots=True)
class Window:
    """Layers that keep only a window of tokens.

    Attributes:
        layers: Layers of each page size.
        window: Tokens that such a layer looks back.
        block: Tokens of one of its pages.
    """

    layers: int
    window: int
    block: int

    def pages(self, in_flight: int, context: int) -> int:
        """Pages that one request may hold: window, tokens in flight, one for an uneven start."""
        return _ceil(min(self.window - 1 + in_flight, context), self.block) + 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The layers of the model that hold KV.

    Attributes:
        compressed_by_4: Layers with a C4A cache and an indexer (ratio 4).
        windows: Sliding-window layers, and the compressors' states of ratio 4 and 128.
    """

    compressed_by_4: int
    windows: tuple[Window, ...]

    @property
    def tuples(self) -> int:
        """Layers of one page size in a block: the allocator pads as little as it can."""
        counts = [self.compressed_by_4, *(window.layers for window in self.windows)]
        candidates = range(self.compressed_by_4, max(counts) + 1)
        chunk = min(candidates, key=lambda size: (sum(-count % size for count in counts), -size))
        return max(self.compressed_by_4, *(_ceil(count, _ceil(count, chunk)) for count in counts))

    def pages(self, context: int, in_flight: int) -> int:
        """Pages of one request, summed over the groups that share the blocks."""
        total = _ceil(context, BLOCK)
        for window in self.windows:
            total += _ceil(window.layers, self.tuples) * window.pages(in_flight, context)
        return total

    def bytes_needed(self, context: int, in_flight: int) -> int:
        """KV of one request on one rank.

        Args:
            context: Tokens of the request.
            in_flight: Tokens scheduled and not settled: steps at once x tokens a step.

        Returns:
            Bytes; the engine does not start with a smaller pool.
        """
        return self.tuples * LAYER_TUPLE_BYTES * self.pages(context, in_flight)

    def longest_context(self, pool: int, in_flight: int, limit: int = 1_048_576) -> int:
        """Longest context, in whole blocks, whose need fits the pool; 0 if none does."""
        low, high = 0, limit // BLOCK
        while low < high:
            middle = (low + high + 1) // 2
            if self.bytes_needed(middle * BLOCK, in_flight) <= pool:
                low = middle
            else:
                high = middle - 1
        return low * BLOCK


def flash_layout(*, draft: bool) -> Layout:
    """DeepSeek-V4-Flash-0731: 43 layers of ratio 0, 0, then (4, 128) in turn.

    Args:
        draft: With DSpark's three stages, which have a window only.
    """
    return Layout(
        compressed_by_4=21,
        windows=(
            Window(layers=43 + 3 * draft, window=128, block=64),
            Window(layers=21, window=8, block=4),  # states of ratio 4 (and the indexer's)
            Window(layers=20, window=128, block=8),  # states of ratio 128
        ),
    )


# Memory of one node, for the budget beside the pool. Not measured here: the field's figures for
# this model.
NODE_TOTAL_BYTES = int(121.69 * GIB)
RANK_WEIGHTS_BYTES = int(81.3 * GIB)


def granted_bytes(utilization: float) -> int:
    """Memory that the engine plans with, bytes: it wants all of it free at its start.

    Args:
        utilization: Share of the node's memory, 0 to 1.

    Source:
        v1/worker/utils.py `request_memory` of vLLM 0.27.1 refuses a start with less.
    """
    return int(utilization * NODE_TOTAL_BYTES)


def budget_left(utilization: float, pool: int) -> int:
    """Planned memory of a node that weights and pool leave to activations and graphs, in bytes.

    Args:
        utilization: Share of the node's memory that the engine may plan with.
        pool: Pinned KV pool in bytes.
    """
    return granted_bytes(utilization) - RANK_WEIGHTS_BYTES - pool


def gib(count: int) -> str:
    """Bytes as GiB with two digits, as the engine writes them."""
    return f"{count / GIB:.2f} GiB"


def _ceil(count: int, size: int) -> int:
    return -(-count // size)
