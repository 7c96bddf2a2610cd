# ruff: noqa: E402 - the scripts are no package, and are skipped before they import what is not there
"""The benchmark's gates see what is wrong, and what a GB10 takes passes them.

On the CPU: wrong kernels are plain torch, right ones run in the interpreter.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import cases
import cases_common
import cases_indexer
import sm121

from kernels.support import BF16_TOLERANCE
from twinspark.kernels import mqa_logits, paged_mqa_logits
from twinspark.kernels.mqa_logits.reference import mqa_logits as mqa_reference
from twinspark.kernels.paged_mqa_logits.reference import paged_mqa_logits as paged_reference

pytestmark = pytest.mark.vllm
ANY = torch.iinfo(torch.int32).max
MQA_GATES = cases_indexer.MQA_GATES
GATED = [choice for choice in sm121.choices() if choice[0] in cases.GATES]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    torch.manual_seed(0)
    for module in (cases, cases_indexer):
        monkeypatch.setattr(module, "CUDA", "cpu")
    # the interpreter truncates to bfloat16 where a GPU rounds
    monkeypatch.setattr(cases, "BF16_LIMIT", BF16_TOLERANCE)
    monkeypatch.setattr(cases, "TWO_TERMS_LIMIT", 5e-5)
    monkeypatch.setattr(cases_indexer, "MQA_GATES", MQA_GATES[:1])
    monkeypatch.setattr(cases, "O_PROJ_GATES", ((1, 2), (6, 1), (77, 1)))


def prefill(*, low: int = 0, high: int = 0, rows: int | None = None):
    """A kernel of plain torch whose bounds are off by `low` and `high`, that leaves out rows."""

    def run(*args, out):
        q, k, k_scale, weights, ks, ke = args
        begin, end = (ks + low).clamp(min=0), (ke + high).clamp(max=len(k))
        want = mqa_reference(q, k, k_scale, weights, begin, end).float()
        inside = ~torch.isinf(want)
        if rows is not None:
            inside[rows] = False
        out[inside] = want[inside]
        return out

    return run


@pytest.mark.parametrize(
    ("wrong", "kernel"),
    [
        (False, prefill()),
        (True, prefill(low=-ANY // 2, high=ANY // 2)),
        (True, prefill(low=-1)),
        (True, prefill(low=1)),
        (True, prefill(high=1)),
        (True, prefill(high=-1)),
        (True, prefill(rows=66)),
        (True, prefill(rows=0)),
    ],
    ids=["right", "no bounds", "before", "after", "past", "short", "not the last row", "not 0"],
)
def test_prefill_gate__sees_a_wrong_bound(monkeypatch, wrong, kernel):
    monkeypatch.setattr(mqa_logits, "dispatch", lambda *_, **__: (kernel, "fake"))
    if not wrong:
        assert cases.GATES["mqa_logits"]() < 1e-6
        return
    with pytest.raises(cases_common.RedGateError):
        cases.GATES["mqa_logits"]()


def test_prefill_gate__sees_what_is_written_past_the_last_key(monkeypatch):
    def run(*args, out):
        out.as_strided((1,), (1,), out.storage_offset() + out.shape[1]).zero_()
        return prefill()(*args, out=out)

    monkeypatch.setattr(mqa_logits, "dispatch", lambda *_, **__: (run, "fake"))
    with pytest.raises(cases_common.RedGateError, match="1 logits"):
        cases.GATES["mqa_logits"]()


def test_prefill_gate__runs_with_several_programs_a_block_of_rows():
    """132 multiprocessors are an H200's, 48 a GB10's."""
    assert any(mqa_logits.splits_sm90(*sizes, 132) > 1 for sizes in MQA_GATES)
    (config,) = {config for op, _, config in sm121.choices() if op == "mqa_logits"}
    assert any(mqa_logits.splits(*sizes, config, 48) > 1 for sizes in MQA_GATES)


def test_prefill_gate__draws_every_kind_of_bounds():
    ks, ke = cases_indexer.gate_bounds(67, 1333)
    kinds = (ke > 1333, ke < 1000, ke == ks, ke < ks, ks < 0, (ks == 0) & (ke == 1333), ks > 1000)
    assert all(bool(kind.any()) for kind in kinds)
    assert int((ke - ks).clamp(min=0).sum()) > 67 * 200  # most rows see much


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_decode_gate__sees_a_wrong_length(monkeypatch, off):
    def run(*args, out):
        lens = (args[3] + off).clamp(0, 1100)
        want = paged_reference(*args[:3], lens, *args[4:]).float()
        inside = ~torch.isinf(want)
        out[inside] = want[inside]

    monkeypatch.setattr(paged_mqa_logits, "dispatch", lambda *_, **__: (run, "fake"))
    if off:
        with pytest.raises(cases_common.RedGateError):
            cases.GATES["paged_mqa_logits"]()
    else:
        assert cases.GATES["paged_mqa_logits"]() < 1e-6


@pytest.mark.parametrize("choice", GATED, ids=lambda c: f"{c[0]} {c[1]} {c[2].key}")
def test_configuration__that_a_gb10_takes_is_the_definition(choice):
    """The interpreter's twin of the test in `test_on_gpu.py`."""
    op, _, config = choice
    print(f"relative error {cases.GATES[op](config):.1e}")
