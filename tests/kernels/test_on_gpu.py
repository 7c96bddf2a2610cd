# ruff: noqa: E402 - skipped before it imports what is not there
"""On a card: what dispatch takes there is the definition, and comparisons live in CUDA graphs.

So is every configuration that a GB10 takes, whatever the card. By hand, see `docs/kernels.md`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import cases
import fused_topk
import sm121

HERE = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") == "0"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.vllm,
    pytest.mark.skipif(not HERE, reason="no CUDA device, or Triton interprets"),
]
OPS = (
    "mqa_logits", "paged_mqa_logits", "hc_prenorm_gemm", "fp8_o_proj", "zero_rows",
    "c128a_metadata",
)  # fmt: skip
GATED = [choice for choice in sm121.choices() if choice[0] in cases.GATES]


@pytest.mark.parametrize("op", OPS)
def test_kernel__of_dispatch_is_the_definition(op):
    from twinspark.kernels import dispatch  # noqa: PLC0415

    dispatch.forget()
    error = cases.GATES[op](None)
    print(f"{op}: relative error {error:.2e}, {dispatch.recorded()}")
    assert {choice.op for choice in dispatch.recorded()} == {op}


def test_topk__of_every_fused_configuration_is_that_of_the_logits():
    """Those that are timed, and the one that a GB10 takes."""
    chosen = (fused_topk.Fused(config) for op, _, config in sm121.choices() if op == "mqa_topk")
    forms = (*fused_topk.FUSED, *chosen)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    _, said = fused_topk.gates(fused_topk.hard_inputs(), processors, forms)
    assert len(said) == 3 * len(forms)
    assert not [row for row in said if "error" in row]


@pytest.mark.parametrize("choice", GATED, ids=lambda c: f"{c[0]} {c[1]} {c[2].key}")
def test_configuration__that_a_gb10_takes_is_the_definition(choice):
    """What a card cannot run, for want of shared memory say, fails here: it was chosen to fit."""
    op, case, config = choice
    print(f"{op} {case} {config.key}: relative error {cases.GATES[op](config):.2e}")


def test_comparison__is_made_again_by_every_replay():
    from twinspark.kernels import agreement  # noqa: PLC0415

    agreement.forget()
    theirs = torch.randn(6, 2048, device="cuda")
    ours = theirs.clone()
    begin, end = (torch.full((6,), n, dtype=torch.int32, device="cuda") for n in (0, 2048))
    agreement.logits("mqa_logits", ours, theirs, begin, end)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        agreement.logits("mqa_logits", ours, theirs, begin, end)
    for _ in range(5):
        graph.replay()
    (seen,) = agreement.settle()
    assert (seen.calls, seen.rows, seen.disagreements) == (6, 36, 0)
    assert (seen.relative_error, seen.top_k_overlap) == (0.0, 1.0)
    ours.mul_(-1.0)  # a kernel that breaks after the capture
    graph.replay()
    (seen,) = agreement.settle()
    assert (seen.calls, seen.disagreements) == (7, 1)
    assert seen.relative_error == pytest.approx(2.0)
    assert seen.top_k_overlap < 0.5
    agreement.forget()
