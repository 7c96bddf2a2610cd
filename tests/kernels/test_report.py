"""The committed report, and what is drawn from it."""
# ruff: noqa: E402 - the scripts are no package

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "engine_overlay/benchmarks"))
import report as drawing
import shapes


@pytest.fixture(scope="module")
def report() -> dict:
    return json.loads(drawing.REPORT.read_text(encoding="utf-8"))


def test_report__says_what_it_was_made_on(report):
    made = report["provenance"]
    assert report["schema"] == "twinspark.kernel-bench/1"
    assert all(made[key] for key in ("device", "torch", "triton", "date", "commit", "repeat"))
    assert made["label"].startswith("emulated")


def test_report__holds_no_red_gate_and_no_error(report):
    assert report["errors"] == {}
    assert [row for row in report["gates"] if "error" in row] == []
    assert [row for row in report["rows"] if "error" in row] == []


def test_report__times_every_registered_case_with_a_chosen_kernel(report):
    timed = drawing.cases(report)
    for shape in shapes.SHAPES:
        assert drawing.best(timed[shape.op, shape.name], "kernel"), shape


def test_report__work_is_that_of_the_registry(report):
    for shape in shapes.SHAPES:
        for row in drawing.cases(report)[shape.op, shape.name]:
            assert row["gbps"] == pytest.approx(
                shape.bytes / row["median_us"] / 1e3,
                rel=2e-3,
                abs=0.06,  # one decimal is kept
            )
            assert row["tflops"] == pytest.approx(
                shape.flop / row["median_us"] / 1e6, rel=2e-3, abs=0.006
            )


def test_document__shows_the_committed_report(report):
    text = drawing.DOCUMENT.read_text(encoding="utf-8")
    assert drawing.document(text, report) == text


def test_plots__show_the_committed_report(report):
    for op in shapes.OPS:
        path = drawing.REPORT.with_name(f"{op}.svg")
        assert path.read_text(encoding="utf-8") == drawing.plot(report, op)


def test_best__does_not_take_a_kernel_that_was_not_chosen():
    rows = [
        {"kind": "kernel", "who": "fast", "chosen": False},
        {"kind": "kernel", "who": "chosen", "chosen": True},
        {"kind": "anchor", "who": "torch"},
        {"kind": "anchor", "who": "deepgemm splits=4"},
    ]
    assert drawing.best(rows, "kernel")["who"] == "chosen"
    assert drawing.best(rows, "anchor", "deepgemm")["who"] == "deepgemm splits=4"
    assert drawing.others(rows)["who"] == "torch"
