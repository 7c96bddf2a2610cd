# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import json
import math

import pytest

torch = pytest.importorskip("torch")

from twinspark.kernels import agreement

pytestmark = pytest.mark.vllm
INDEXER, PRODUCT = "mqa_logits", "fp8_o_proj"


@pytest.fixture(autouse=True)
def _fresh():
    agreement.forget()
    yield
    agreement.forget()


def compare(ours, theirs, begin: int, end: int):
    rows = ours.shape[0]
    bounds = (torch.full((rows,), edge, dtype=torch.int32) for edge in (begin, end))
    agreement.logits(INDEXER, ours, theirs, *bounds)
    (seen,) = agreement.settle()
    return seen


def test_logits__do_not_look_outside_the_bounds():
    theirs = torch.randn(3, 40)
    ours = theirs.clone()
    ours[:, :5] = float("nan")
    theirs[:, 30:] = float("inf")
    seen = compare(ours, theirs, 5, 30)
    assert (seen.calls, seen.rows, seen.undefined_rows, seen.relative_error) == (1, 3, 0, 0.0)


def test_logits__measure_the_error_inside():
    theirs = torch.ones(2, 10)
    seen = compare(theirs * 1.01, theirs, 0, 10)
    assert seen.relative_error == pytest.approx(0.01, rel=1e-3)
    assert seen.row_error == pytest.approx(0.01, rel=1e-3)
    assert seen.disagreements == 1


def test_logits__of_an_empty_row_agree():
    seen = compare(torch.full((1, 8), float("nan")), torch.full((1, 8), float("nan")), 3, 3)
    assert (seen.relative_error, seen.undefined_rows, seen.disagreements) == (0.0, 0, 0)


def test_logits__notice_one_wrong_row_among_many():
    theirs = torch.randn(4000, 64)
    ours = theirs.clone()
    ours[1234] *= 1.03
    seen = compare(ours, theirs, 0, 64)
    assert seen.relative_error < agreement.BOUNDS[INDEXER].relative_error
    assert seen.row_error == pytest.approx(0.03, rel=1e-2)
    assert seen.disagreements == 1


@pytest.mark.parametrize(("swapped", "over"), [(5, 0), (51, 1)])
def test_logits__notice_a_top_512_that_differs(swapped, over):
    """Two values a hair apart: no error to speak of, and another set is kept."""
    theirs = 1.0 + torch.randperm(1024)[None] * 1e-6
    order = theirs[0].argsort(descending=True)
    ours = theirs.clone()
    ours[0, order[512 - swapped : 512]], ours[0, order[512 : 512 + swapped]] = (
        theirs[0, order[512 : 512 + swapped]],
        theirs[0, order[512 - swapped : 512]],
    )
    seen = compare(ours, theirs, 0, 1024)
    assert seen.relative_error < agreement.BOUNDS[INDEXER].relative_error
    assert (seen.top_k_rows, seen.disagreements) == (1, over)
    assert seen.top_k_overlap == pytest.approx((512 - swapped) / 512)


def test_logits__take_equal_keys_for_each_other():
    theirs = torch.ones(1, 2000)
    theirs[0, :100] = 2.0
    assert compare(theirs.clone(), theirs, 0, 2000).top_k_overlap == 1.0


def test_logits__of_512_keys_have_no_top_512_to_compare():
    theirs = torch.randn(1, 512)
    seen = compare(-theirs, theirs, 0, 512)
    assert (seen.top_k_rows, seen.top_k_overlap) == (0, 1.0)


def test_logits__in_chunks_find_the_same(monkeypatch):
    theirs = torch.randn(7, 900)
    ours = theirs + torch.randn(7, 900) * 1e-2
    whole = compare(ours, theirs, 3, 880)
    agreement.forget()
    monkeypatch.setattr(agreement, "CHUNK", 2000)
    parts = compare(ours, theirs, 3, 880)
    assert (parts.rows, parts.top_k_rows, parts.top_k_overlap) == (7, 7, whole.top_k_overlap)
    assert parts.relative_error == pytest.approx(whole.relative_error, rel=1e-6)
    assert parts.row_error == whole.row_error


def test_worst__is_kept_over_calls_and_operations():
    one = torch.ones(2, 4)
    agreement.values("hc_prenorm_gemm", (one, one), (one[:, 0] * 1.5, one[:, 0]))
    agreement.values("hc_prenorm_gemm", (one, one))
    agreement.values(PRODUCT, (one, one))
    a, b = agreement.settle()
    assert (a.op, a.calls, a.rows, a.disagreements) == ("hc_prenorm_gemm", 2, 4, 1)
    assert a.relative_error == pytest.approx(0.5)
    assert (b.op, b.relative_error, b.disagreements) == (PRODUCT, 0.0, 0)


def test_nan__wins_stays_and_is_over_every_bound():
    one = torch.ones(1, 4)
    agreement.values(PRODUCT, (one * float("nan"), one))
    agreement.values(PRODUCT, (one, one))
    (seen,) = agreement.settle()
    assert math.isnan(seen.relative_error)
    assert (seen.calls, seen.disagreements) == (2, 1)
    assert json.loads(json.dumps(seen.as_dict(), allow_nan=False))["relative_error"] is None


def test_original__that_is_no_number_is_counted_not_compared():
    theirs = torch.ones(2, 4)
    theirs[1, 2] = float("nan")
    agreement.values(PRODUCT, (torch.ones(2, 4), theirs))
    (seen,) = agreement.settle()
    assert (seen.undefined_rows, seen.relative_error, seen.disagreements) == (1, 0.0, 0)


def test_comparison__adds_up_inside_and_outside_inference_mode():
    one = torch.ones(1, 4)
    with torch.inference_mode():
        agreement.values(PRODUCT, (one, one))
    agreement.values(PRODUCT, (one, one))
    assert agreement.settle()[0].calls == 2
