"""How far our kernels and those they replace agree, call by call (`TWINSPARK_KERNELS=check`).

The comparison stays on the device and adds to a ledger there: nothing is read back, so a CUDA graph
that captured a call also compares it at every replay. `settle` reads the ledgers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

TOP_K = 512  # keys the indexer keeps
CHUNK = 1 << 25  # elements of a matrix looked at together: bounds what a comparison allocates


@dataclass(frozen=True, slots=True)
class Bound:
    """What one call may differ by.

    Attributes:
        relative_error: Frobenius norm of the difference over that of the original.
        row_error: Largest difference in a row over the row's largest value: sees one wrong row
            among thousands.
        top_k_overlap: Share of a row's 512 kept keys that the original would keep too.
    """

    relative_error: float
    row_error: float
    top_k_overlap: float = 0.0


# Hopper adds FP8 products in about 14 bits; tf32 has 11 bits of mantissa; bfloat16 results step by
# 2^-8, and rows near zero by cancellation show more of all that.
BOUNDS = {
    "hc_prenorm_gemm": Bound(2e-3, 1e-2),
    "fp8_o_proj": Bound(4e-3, 2e-2),
    "mqa_logits": Bound(1e-3, 5e-3, 0.99),
    "paged_mqa_logits": Bound(1e-3, 5e-3, 0.99),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Worst of all calls of one operation.

    Attributes:
        op: Operation.
        calls: Calls compared, replays of captured ones included.
        rows: Rows compared.
        undefined_rows: Rows in which the original itself is no finite number; not compared there.
        top_k_rows: Rows with more than 512 candidates.
        disagreements: Calls over one of the bounds.
        relative_error: Worst of all calls, see `Bound`.
        row_error: Worst of all rows.
        top_k_overlap: Worst of all rows.
    """

    op: str
    calls: int
    rows: int
    undefined_rows: int
    top_k_rows: int
    disagreements: int
    relative_error: float
    row_error: float
    top_k_overlap: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: an error that is no number is None."""
        record = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }
        return record | {"bound": asdict(BOUNDS[self.op])}


@dataclass(frozen=True, slots=True)
class _Ledger:
    """Figures of one operation, on its device.

    Attributes:
        sums: [5] float64: calls, rows, undefined rows, rows with a top-k, disagreements.
        worst: [3] float64: relative error, row error, 1 - overlap; a NaN wins and stays.
    """

    sums: torch.Tensor
    worst: torch.Tensor


_ledgers: dict[str, _Ledger] = {}


def forget() -> None:
    """Drop it all (tests)."""
    _ledgers.clear()


def settle() -> tuple[Agreement, ...]:
    """What has been compared in this process; waits for the device."""
    return tuple(row for op, ledger in _ledgers.items() if (row := _read(op, ledger)).calls)


def capturing() -> bool:
    """Whether calls now go into a CUDA graph, where nothing can be read back."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def values(op: str, *pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Compare results, (ours, the original's), row by row along their first dimension."""
    rows = pairs[0][0].shape[0]
    if rows:
        found = [_compare(a.reshape(rows, -1), b.reshape(rows, -1)) for a, b in pairs]
        errors = torch.stack([_relative(part) for part in found])
        _note(op, rows, errors.amax(), torch.stack(found))


def logits(
    op: str, ours: torch.Tensor, theirs: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> None:
    """Compare logits inside each row's bounds, and the sets of keys that a top-k would keep.

    Args:
        op: Operation.
        ours: [M, >= N] float32.
        theirs: [M, >= N] float32; what lies outside the bounds does not count.
        begin: [M] int32.
        end: [M] int32, exclusive.
    """
    rows, keys = ours.shape[0], min(ours.shape[1], theirs.shape[1])
    if not rows or not keys:
        return
    n = torch.arange(keys, device=ours.device)
    step = max(CHUNK // keys, 1)
    found = []
    for at in range(0, rows, step):
        part = slice(at, at + step)
        inside = (n >= begin[part, None]) & (n < end[part, None])
        found.append(_compare(ours[part, :keys], theirs[part, :keys], inside))
    parts = torch.stack(found)
    _note(op, rows, _relative(parts[:, :2].sum(0)), parts)


def _relative(part: torch.Tensor) -> torch.Tensor:
    return (part[0] / part[1].clamp_min(1e-60)).sqrt()


def _compare(
    ours: torch.Tensor, theirs: torch.Tensor, inside: torch.Tensor | None = None
) -> torch.Tensor:
    """What differs between two matrices, where a mask says; with a mask, their top 512 too.

    Returns:
        [6] float64: square of the difference, of the original, worst row error, undefined rows,
        rows with a top-k, largest share of 512 kept keys that the original would not keep.
    """
    finite = torch.isfinite(theirs)
    valid = finite if inside is None else finite & inside
    undefined = (~finite if inside is None else inside & ~finite).any(1)
    other = theirs.float().masked_fill(~valid, 0.0)
    off = (ours.float() - other).masked_fill(~valid, 0.0)
    row_error = off.abs().amax(1) / other.abs().amax(1).clamp_min(1e-30)
    figures = [off.square().sum(), other.square().sum(), row_error.amax(), undefined.sum()]
    if inside is not None and ours.shape[1] > TOP_K:
        long = (inside.sum(1) > TOP_K) & ~undefined
        figures += [long.sum(), (_missed(ours, theirs, inside) * long).amax()]
    else:
        figures += [torch.zeros((), device=ours.device)] * 2
    return torch.stack([figure.double() for figure in figures])


def _missed(ours: torch.Tensor, theirs: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Share of each row's 512 best keys by ours that are below the original's 512th: [M].

    By value, so that keys of equal logits may stand for each other.
    """
    lowest = float("-inf")
    other = theirs.masked_fill(~inside, lowest)
    kept = ours.masked_fill(~inside, lowest).topk(TOP_K, -1, sorted=False).indices
    least = other.topk(TOP_K, -1, sorted=False).values.amin(1, keepdim=True)
    return (other.gather(1, kept) < least).sum(1) / TOP_K


def _note(op: str, rows: int, error: torch.Tensor, parts: torch.Tensor) -> None:
    """Add one call to the operation's ledger."""
    bound, ledger = BOUNDS[op], _ledger(op, error.device)
    row_error, missed = parts[:, 2].amax(), parts[:, 5].amax()
    agreed = (error <= bound.relative_error) & (row_error <= bound.row_error)
    agreed &= 1 - missed >= bound.top_k_overlap
    counts = [torch.ones_like(error), torch.full_like(error, rows), parts[:, 3].sum()]
    ledger.sums.add_(torch.stack([*counts, parts[:, 4].sum(), (~agreed).double()]))
    ledger.worst.copy_(torch.maximum(ledger.worst, torch.stack([error, row_error, missed])))


def _ledger(op: str, device: torch.device) -> _Ledger:
    """The operation's ledger; all are made at the first call, which no graph captures.

    Raises:
        RuntimeError: That call is captured after all: each replay would begin a new ledger.
    """
    if op not in _ledgers:
        if capturing():
            raise RuntimeError(f"the first comparison of {op} is inside a graph capture")
        with torch.inference_mode(mode=False):  # else only inference code could add to them
            for name in BOUNDS:
                sums, worst = (torch.zeros(n, dtype=torch.float64, device=device) for n in (5, 3))
                _ledgers[name] = _Ledger(sums, worst)
    return _ledgers[op]


def _read(op: str, ledger: _Ledger) -> Agreement:
    calls, rows, undefined, top_k_rows, disagreements = map(int, ledger.sums.tolist())
    error, row_error, missed = ledger.worst.tolist()
    return Agreement(
        op, calls, rows, undefined, top_k_rows, disagreements, error, row_error, 1 - missed
    )
