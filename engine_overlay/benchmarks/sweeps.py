"""Which configurations a sweep times: an operation's finalists, or all where they are few."""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

from typing import TYPE_CHECKING

from shapes import hc_splits

from twinspark.kernels import (
    c128a_metadata,
    fp8_o_proj,
    hc_prenorm_gemm,
    mqa_logits,
    paged_mqa_logits,
    zero_rows,
)
from twinspark.kernels.dispatch import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shapes import Shape

    from twinspark.kernels.config import Config


def _mqa(_: Shape) -> Sequence[Config | None]:
    return (None, *mqa_logits.FINALISTS)  # None: whatever dispatch takes, on sm_90 the Gluon form


def _paged(shape: Shape) -> Sequence[Config]:
    shared = shape.sizes["share"] > 1
    return paged_mqa_logits.FINALISTS_SHARED if shared else paged_mqa_logits.FINALISTS


def _hc(shape: Shape) -> Sequence[Config]:
    rows = shape.sizes["rows"]
    if rows <= hc_prenorm_gemm.ONE_TILE:
        return hc_prenorm_gemm.FINALISTS_ONE
    few = rows <= hc_prenorm_gemm.FEW_ROWS
    return hc_prenorm_gemm.FINALISTS_FEW if few else hc_prenorm_gemm.FINALISTS_MANY


def _o_proj(shape: Shape) -> Sequence[Config]:
    tokens = shape.sizes["tokens"]
    if tokens <= fp8_o_proj.FEW_TOKENS:
        return fp8_o_proj.FINALISTS_FEW
    many = tokens > fp8_o_proj.SOME_TOKENS
    return fp8_o_proj.FINALISTS_MANY if many else fp8_o_proj.FINALISTS_SOME


def _zero(_: Shape) -> Sequence[Config]:
    return zero_rows.CONFIGS


def _c128a(_: Shape) -> Sequence[Config]:
    return c128a_metadata.CONFIGS


SWEEPS = {
    "mqa_logits": _mqa,
    "paged_mqa_logits": _paged,
    "hc_prenorm_gemm": _hc,
    "fp8_o_proj": _o_proj,
    "zero_rows": _zero,
    "c128a_metadata": _c128a,
}


def chosen(shape: Shape, capability: int, processors: int) -> set[str]:
    """Names of the rows of a report that show what `choose` takes for a case.

    The hyper-connection's name carries its splits, which are the caller's: the best counts.
    """
    where, sizes = Target(capability, processors), shape.sizes
    if shape.op == "mqa_logits":
        reason = mqa_logits.choose(where)[1]
        return {mqa_logits.GLUON_REASON if capability == 90 else reason}
    if shape.op == "paged_mqa_logits":
        return {paged_mqa_logits.choose(where, sizes["share"])[0].key}
    if shape.op == "hc_prenorm_gemm":
        rows = sizes["rows"]
        keys_ = {s: hc_prenorm_gemm.choose(where, rows, s)[0].key for s in hc_splits(rows)}
        return {f"{key} splits={s}" for s, key in keys_.items()}
    if shape.op == "fp8_o_proj":
        return {fp8_o_proj.choose(where, sizes["tokens"])[0].key}
    module = zero_rows if shape.op == "zero_rows" else c128a_metadata
    return {module.choose(where)[0].key}


def configurations(shape: Shape, capability: int, processors: int) -> list[Config | None]:
    """What a sweep times of a case: its finalists, and always what dispatch takes (None).

    None is left out where every name that `chosen` gives is a finalist's: it would be timed twice.
    """
    found = list(SWEEPS[shape.op](shape))
    keys = {config.key for config in found if config}
    names = {name.split(" splits=")[0] for name in chosen(shape, capability, processors)}
    return found if None in found or names <= keys else [None, *found]
