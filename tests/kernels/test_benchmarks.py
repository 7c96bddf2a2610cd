"""The registry's least work, against counting it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import shapes


def test_prefill_flop__counts_the_pairs_that_causality_allows():
    rows, context = 64, 1000
    pairs = sum(
        1 for m in range(rows) for key in range(context // 4) if 4 * key + 3 <= context - rows + m
    )
    (shape,) = [shapes._mqa(rows, context)]
    assert shape.flop == 2 * 64 * 128 * pairs


def test_rows__that_share_a_table_share_its_bytes():
    alone, shared = shapes._paged(6, 4096, 1, ""), shapes._paged(6, 4096, 6, "")
    assert alone.flop == shared.flop
    assert alone.bytes - shared.bytes == 5 * 1024 * 132


def test_registry__names_every_case_once():
    names = [(shape.op, shape.name) for shape in shapes.SHAPES]
    assert len(set(names)) == len(names)
    assert set(shapes.OPS) == {
        "mqa_logits",
        "paged_mqa_logits",
        "hc_prenorm_gemm",
        "fp8_o_proj",
        "zero_rows",
        "c128a_metadata",
    }


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda s: f"{s.op} {s.name}")
def test_registry__has_bytes_for_every_floor(shape):
    assert shape.bytes > 0
    assert shape.goal


def test_shapes__of_an_operation_that_is_none_are_refused():
    with pytest.raises(ValueError, match="nonsense"):
        shapes.of("nonsense")


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda s: f"{s.op} {s.name}")
def test_sets__are_larger_together_than_what_should_not_hold_them(shape):
    larger = 128 << 20
    sets = shapes.rotations(shape.bytes, larger)
    assert sets * shape.bytes >= larger
    assert (sets - 1) * shape.bytes < larger


def test_goals__are_those_of_how_near_deepgemm_is_to_the_copy_bandwidth():
    goals = {shape.name: shape.goal for shape in shapes.of("paged_mqa_logits")}
    assert goals["B=1 ctx=131072"] == ">= 1.15x DeepGEMM"
    assert goals["B=6 ctx=131072"] == ">= 1.0x DeepGEMM"
