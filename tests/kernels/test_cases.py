# ruff: noqa: E402 - the scripts are no package, and are skipped before they import what is not there
"""The benchmark's cases rotate over enough memory, and its names of chosen kernels are a row's."""

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
import shapes
import sweeps

from twinspark.kernels import mqa_logits

pytestmark = pytest.mark.vllm


def rows_of(shape, configs, reason: str) -> set[str]:
    """Names of a report's rows: see `Bench.add`."""
    names = {config.key if config else reason for config in configs}
    if shape.op != "hc_prenorm_gemm":
        return names
    splits = shapes.hc_splits(shape.sizes["rows"])
    return {f"{name} splits={count}" for name in names for count in splits}


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda s: f"{s.op} {s.name}")
def test_chosen__are_names_of_rows_that_a_sweep_on_an_h200_has(shape):
    configs = sweeps.configurations(shape, 90, 132)
    names = sweeps.chosen(shape, 90, 132)
    assert names
    assert names <= rows_of(shape, configs, mqa_logits.GLUON_REASON)


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda s: f"{s.op} {s.name}")
def test_sweep__always_times_what_is_chosen(shape):
    for card in ((90, 132), (121, 48)):
        configs = sweeps.configurations(shape, *card)
        if None not in configs:
            keys = rows_of(shape, configs, "")
            assert sweeps.chosen(shape, *card) <= keys


def test_operations__have_a_gate_a_benchmark_and_a_sweep():
    for table in (cases.GATES, cases.BENCHES, sweeps.SWEEPS):
        assert set(table) == set(shapes.OPS)


@pytest.mark.parametrize("op", shapes.OPS)
def test_cases__rotate_sets_that_share_no_memory(monkeypatch, op):
    """With an L2 small enough for a CPU; calls are not made, their tensors are looked at."""
    shape = shapes.of(op)[0]
    if op in {"mqa_logits", "paged_mqa_logits"}:  # smaller than the registry's
        shape = shapes._mqa(16, 4096) if op == "mqa_logits" else shapes._paged(2, 4096, 1, "x")
    for module in (cases, cases_indexer):
        monkeypatch.setattr(module, "CUDA", "cpu")
    for module in (cases_common, cases_indexer):
        monkeypatch.setattr(module, "L2_TWICE", int(2.5 * shape.bytes))
    seen = []

    def dispatch(*_, **__):
        return (lambda *args, out=None: seen.append((*args, out))), "fake"

    monkeypatch.setattr(
        getattr(cases, op, None) or getattr(cases_indexer, op), "dispatch", dispatch
    )
    bench = cases.BENCHES[op](shape, [None])
    assert len(bench.chosen) == len(bench.kernels)
    for calls in bench.kernels.values():
        assert len(calls) == 3
        seen.clear()
        for call in calls:
            call()
        written = {
            "mqa_logits": lambda a: a[-1], "paged_mqa_logits": lambda a: a[-1],
            "hc_prenorm_gemm": lambda a: a[2], "fp8_o_proj": lambda a: a[4],
            "zero_rows": lambda a: a[1], "c128a_metadata": lambda a: a[7],
        }[op]  # fmt: skip
        assert len({written(args).data_ptr() for args in seen}) == 3
        if op == "paged_mqa_logits":  # pages of its own for each
            pages = torch.cat([args[4].flatten() for args in seen])
            assert len(pages.unique()) == len(pages)
        if op == "zero_rows":
            assert len(torch.cat([args[1] for args in seen]).unique()) == 3 * shape.sizes["rows"]
    if op in shapes.WRITERS:
        assert set(bench.anchors) == {"memset", "memset outside a graph"}
        assert bench.ungraphed == {"memset outside a graph"}
        assert len(bench.anchors["memset"]) == 3
