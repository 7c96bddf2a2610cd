"""How far our kernels and those they replace agree, call by call (`TWINSPARK_KERNELS=check`)."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

TOP_K = 512  # keys the indexer keeps
FILE_VARIABLE = "TWINSPARK_REPORT_DIR"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Worst of all calls of one operation.

    Attributes:
        op: Operation.
        calls: Calls compared.
        rows: Rows compared.
        relative_error: Largest Frobenius norm of a difference over that of the original.
        top_k_rows: Rows with more than 512 candidates.
        top_k_overlap: Smallest share of the original's 512 best keys that ours holds too.
    """

    op: str
    calls: int = 0
    rows: int = 0
    relative_error: float = 0.0
    top_k_rows: int = 0
    top_k_overlap: float = 1.0


_worst: dict[str, Agreement] = {}


def worst() -> tuple[Agreement, ...]:
    """What has been compared in this process."""
    return tuple(_worst.values())


def forget() -> None:
    """Drop it all (tests)."""
    _worst.clear()


def values(op: str, ours: torch.Tensor, theirs: torch.Tensor) -> Agreement:
    """Compare two results of the same shape."""
    return _note(op, ours.shape[0], _relative(ours.double(), theirs.double()))


def logits(
    op: str, ours: torch.Tensor, theirs: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> Agreement:
    """Compare logits inside each row's bounds, and the sets of keys that a top-k would keep.

    Args:
        op: Operation.
        ours: [M, >= N] float32.
        theirs: [M, >= N] float32; what lies outside the bounds is not read.
        begin: [M] int32.
        end: [M] int32, exclusive.
    """
    keys = min(ours.shape[1], theirs.shape[1])
    n = torch.arange(keys, device=ours.device)
    outside = (n < begin[:, None]) | (n >= end[:, None])
    mine = ours[:, :keys].masked_fill(outside, 0.0)
    other = theirs[:, :keys].masked_fill(outside, 0.0)
    error = _relative(mine.double(), other.double())
    long = (end.clamp(max=keys) - begin) > TOP_K
    overlap = 1.0
    if bool(long.any()):
        lowest = float("-inf")
        sets = [
            kept[long].masked_fill(outside[long], lowest).topk(TOP_K, -1).indices
            for kept in (mine, other)
        ]
        marks = torch.zeros((sets[0].shape[0], keys), dtype=torch.bool, device=ours.device)
        shared = marks.scatter(1, sets[0], True) & marks.scatter(1, sets[1], True)
        overlap = float(shared.sum(1).min()) / TOP_K
    return _note(op, ours.shape[0], error, int(long.sum()), overlap)


def _relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm().clamp_min(1e-30))


def _note(op: str, rows: int, error: float, top_k_rows: int = 0, overlap: float = 1.0) -> Agreement:
    before = _worst.get(op, Agreement(op))
    # max() drops a NaN or keeps it by the order of its arguments; here it wins and stays
    seen = (before.relative_error, error)
    worse = math.nan if any(map(math.isnan, seen)) else max(seen)
    after = replace(
        before,
        calls=before.calls + 1,
        rows=before.rows + rows,
        relative_error=worse,
        top_k_rows=before.top_k_rows + top_k_rows,
        top_k_overlap=min(before.top_k_overlap, overlap),
    )
    _worst[op] = after
    if worse != before.relative_error or after.top_k_overlap < before.top_k_overlap:
        logger.info("twinspark check: %s", after)
    _write()
    return after


def _write() -> None:
    """Leave the figures beside the overlay reports, where a person or a guard finds them."""
    folder = os.environ.get(FILE_VARIABLE)
    if folder:
        path = Path(folder) / f"agreement-{os.getpid()}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps([asdict(row) for row in worst()]), encoding="utf-8")
        part.replace(path)
