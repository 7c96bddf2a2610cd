"""The one registry of shapes that kernels are timed at, each with the least work it needs."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import math
from dataclasses import dataclass

HEADS, DIM = 64, 128
RATIO = 4  # tokens of context an indexer key stands for
PAGE_TOKENS = 64
KEY_BYTES = DIM + 4  # one e4m3 vector and its float32 scale
HC_DEPTH, MIXES = 16_384, 24
GROUPS, GROUP_DEPTH, RANK = 4, 4_096, 1_024  # o-projection of one rank at TP=2
ROW_BYTES = 1_002_240  # one physical row of the packed cache: 62 layers' pages
C128A_WIDTH = 8_192  # compressed tokens of a 1,048,576-token context


@dataclass(frozen=True, slots=True)
class Shape:
    """One case of one operation.

    Attributes:
        op: Operation.
        name: Short name for tables and plots.
        sizes: Sizes by name.
        flop: Floating-point operations that the definition needs.
        bytes: Fewest bytes through device memory: inputs read once, outputs written once.
        goal: What the case is measured against, in words.
    """

    op: str
    name: str
    sizes: dict[str, int]
    flop: float
    bytes: float
    goal: str


def _mqa(rows: int, context: int) -> Shape:
    keys = context // RATIO
    # causal: the rows are the last of the context, a key counts once its last token is there
    pairs = sum((context - rows + m + 1) // RATIO for m in range(rows))
    return Shape(
        "mqa_logits",
        f"M={rows} ctx={context}",
        {"rows": rows, "context": context, "keys": keys},
        2.0 * HEADS * DIM * pairs,
        rows * HEADS * (DIM + 4) + keys * KEY_BYTES + 4.0 * pairs,
        ">= 1.0x DeepGEMM",
    )


def _paged(rows: int, context: int, share: int, goal: str) -> Shape:
    keys = context // RATIO
    tables = rows // share
    label = f"B={rows} ctx={context}" + (f" {share} rows a table" if share > 1 else "")
    return Shape(
        "paged_mqa_logits",
        label,
        {"rows": rows, "context": context, "keys": keys, "share": share},
        2.0 * HEADS * DIM * keys * rows,
        tables * keys * KEY_BYTES + rows * keys * 4.0,
        goal,
    )


def _hc(rows: int, goal: str) -> Shape:
    moved = rows * HC_DEPTH * 2 + MIXES * HC_DEPTH * 4 + rows * (MIXES + 1) * 4
    flop = 2.0 * rows * HC_DEPTH * (MIXES + 1)
    return Shape("hc_prenorm_gemm", f"M={rows}", {"rows": rows}, flop, moved, goal)


def _o_proj(tokens: int) -> Shape:
    flop = 2.0 * tokens * GROUPS * GROUP_DEPTH * RANK
    weight = GROUPS * RANK * GROUP_DEPTH
    moved = weight + tokens * GROUPS * (GROUP_DEPTH * (1 + 4 / 128) + RANK * 2)
    return Shape("fp8_o_proj", f"T={tokens}", {"tokens": tokens}, flop, moved, ">= 0.9x DeepGEMM")


def _zero(rows: int) -> Shape:
    moved = float(rows * ROW_BYTES)
    return Shape("zero_rows", f"rows={rows}", {"rows": rows}, 0.0, moved, ">= 90% of memset")


def _c128a(decodes: int, prefills: int, context: int) -> Shape:
    seen = context // 128
    active = max(128, 1 << (seen - 1).bit_length())
    moved = 4.0 * (decodes * -(-seen // 128) * 128 + prefills * active)
    label = f"decode={decodes} prefill={prefills} ctx={context}"
    sizes = {"decodes": decodes, "prefills": prefills, "context": context, "active": active}
    return Shape("c128a_metadata", label, sizes, 0.0, moved, "bytes written")


SHAPES = (
    _mqa(2048, 16_384),
    _mqa(2048, 131_072),
    _mqa(1145, 468_540),
    _mqa(512, 1_048_576),
    _paged(1, 131_072, 1, ">= 1.15x DeepGEMM"),
    # 1.15x is asked where DeepGEMM is below half of the copy bandwidth; here it reaches 60%
    _paged(6, 131_072, 1, ">= 1.0x DeepGEMM"),
    _paged(36, 131_072, 1, ">= 1.0x DeepGEMM"),
    _paged(6, 1_048_576, 1, ">= 1.0x DeepGEMM"),
    _paged(6, 131_072, 6, "one request of 6 speculative rows"),
    _paged(6, 1_048_576, 6, "one request of 6 speculative rows"),
    _paged(72, 131_072, 6, "12 requests of 6 speculative rows"),
    _hc(6, ">= 2x the better of DeepGEMM and torch"),
    _hc(72, ">= 2x the better of DeepGEMM and torch"),
    _hc(8192, ">= 0.95x DeepGEMM"),
    _o_proj(6),
    _o_proj(72),
    _o_proj(8192),
    *(_zero(rows) for rows in (1, 8, 64, 512)),
    _c128a(6, 0, 1_048_576),
    _c128a(72, 0, 131_072),
    _c128a(0, 4096, 131_072),
)


OPS = tuple(dict.fromkeys(shape.op for shape in SHAPES))
WRITERS = ("zero_rows", "c128a_metadata")  # read next to nothing: a copy's bandwidth is no floor


def of(op: str) -> tuple[Shape, ...]:
    """The cases of one operation.

    Raises:
        ValueError: There is no such operation.
    """
    if op not in OPS:
        raise ValueError(f"no operation {op!r}: one of {', '.join(OPS)}")
    return tuple(shape for shape in SHAPES if shape.op == op)


def hc_splits(rows: int) -> tuple[int, ...]:
    """Splits that `hc_prenorm_gemm` is timed at: the caller chooses them, so the best counts."""
    return (4, 8, 16, 32, 64, 128) if rows <= 128 else (1, 2, 4, 8)


def rotations(size: float, larger_than: int) -> int:
    """Sets of inputs and outputs of `size` bytes each that are at least `larger_than` together."""
    return max(1, math.ceil(larger_than / size))
