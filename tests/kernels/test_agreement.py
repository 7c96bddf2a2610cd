# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from twinspark.kernels import agreement

pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv(agreement.FILE_VARIABLE, raising=False)
    agreement.forget()
    yield
    agreement.forget()


def bounds(rows: int, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((rows,), begin), torch.full((rows,), end)


def test_logits__do_not_look_outside_the_bounds():
    theirs = torch.randn(3, 40)
    ours = theirs.clone()
    ours[:, :5] = float("nan")
    theirs[:, 30:] = float("inf")
    assert agreement.logits("op", ours, theirs, *bounds(3, 5, 30)).relative_error == 0.0


def test_logits__measure_the_error_inside():
    theirs = torch.ones(2, 10)
    assert agreement.logits("op", theirs * 1.01, theirs, *bounds(2, 0, 10)).relative_error == (
        pytest.approx(0.01, rel=1e-3)
    )


def test_logits__notice_a_top_512_that_differs():
    theirs = torch.randperm(1000).float()[None]
    ours = theirs.clone()
    best = theirs[0].topk(512).indices
    ours[0, best[:51]] = -1.0
    seen = agreement.logits("op", ours, theirs, *bounds(1, 0, 1000))
    assert seen.top_k_rows == 1
    assert seen.top_k_overlap == pytest.approx((512 - 51) / 512)


def test_logits__of_512_keys_have_no_top_512_to_compare():
    theirs = torch.randn(1, 512)
    seen = agreement.logits("op", -theirs, theirs, *bounds(1, 0, 512))
    assert (seen.top_k_rows, seen.top_k_overlap) == (0, 1.0)


def test_worst__is_kept_over_calls_and_operations():
    one = torch.ones(2, 4)
    agreement.values("a", one * 1.5, one)
    agreement.values("a", one, one)
    agreement.values("b", one, one)
    a, b = agreement.worst()
    assert (a.op, a.calls, a.rows, a.relative_error) == ("a", 2, 4, pytest.approx(0.5))
    assert (b.op, b.relative_error) == ("b", 0.0)


def test_nan__wins_and_stays():
    one = torch.ones(1, 4)
    agreement.values("a", one * float("nan"), one)
    seen = agreement.values("a", one * 1.1, one)
    assert seen.relative_error != seen.relative_error


def test_file__holds_the_worst_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv(agreement.FILE_VARIABLE, str(tmp_path))
    one = torch.ones(1, 4)
    agreement.values("a", one * 2, one)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())[0]["relative_error"] == pytest.approx(1.0)
