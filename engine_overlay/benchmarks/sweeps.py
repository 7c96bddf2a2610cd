"""Which configurations a sweep on sm_90 tries: those whose tiles its 64-row instruction can fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinspark.kernels import (
    c128a_metadata,
    fp8_o_proj,
    hc_prenorm_gemm,
    mqa_logits,
    paged_mqa_logits,
    zero_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shapes import Shape
    from twinspark.kernels.config import Config


def _mqa(_: Shape) -> Sequence[Config]:
    # descriptors; the two pointer forms only as a control
    control = [c for c in mqa_logits.CONFIGS if c.key in ("m2n64k0w4s3ptr", "m2n128k0w8s3ptr")]
    return control + [c for c in mqa_logits.CONFIGS if c.tma]


def _paged(shape: Shape) -> Sequence[Config]:
    rows = {1, 2} if shape.sizes["share"] > 1 else {1}
    return [c for c in paged_mqa_logits.CONFIGS if c.m in rows]


def _hc(shape: Shape) -> Sequence[Config]:
    if shape.sizes["rows"] <= 16:
        return [c for c in hc_prenorm_gemm.CONFIGS if c.m == 16]
    if shape.sizes["rows"] <= 128:
        return [c for c in hc_prenorm_gemm.CONFIGS if c.m <= 64 and c.k <= 128 and c.warps == 4]
    return [c for c in hc_prenorm_gemm.CONFIGS if c.m >= 64]


def _o_proj(shape: Shape) -> Sequence[Config]:
    tokens = shape.sizes["tokens"]
    if tokens <= 16:
        return [c for c in fp8_o_proj.CONFIGS if c.m == 16 and c.stages >= 4]
    if tokens <= 128:
        return [c for c in fp8_o_proj.CONFIGS if c.tma and c.m <= 64 and c.stages in (3, 4, 6)]
    return [c for c in fp8_o_proj.CONFIGS if c.tma and c.m >= 64 and c.n >= 64 and c.stages <= 4]


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
