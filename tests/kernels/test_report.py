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


@pytest.fixture
def place(tmp_path, monkeypatch, report):
    """The committed report and document, copied to where `main` finds them."""
    monkeypatch.setattr(drawing, "REPORT", tmp_path / "h200.json")
    text = drawing.DOCUMENT.read_text(encoding="utf-8")
    monkeypatch.setattr(drawing, "DOCUMENT", tmp_path / "kernels.md")
    drawing.REPORT.write_text(json.dumps(report), encoding="utf-8")
    drawing.DOCUMENT.write_text(text, encoding="utf-8")
    return tmp_path


def test_write__renews_document_and_plots(place):
    before = drawing.DOCUMENT.read_text(encoding="utf-8")
    head, rest = before.split(drawing.BEGIN)
    tail = rest.split(drawing.END)[1]
    old = f"{head}{drawing.BEGIN}\nold\n{drawing.END}{tail}"
    drawing.DOCUMENT.write_text(old, encoding="utf-8")
    assert drawing.main(["--write"]) == 0
    assert drawing.DOCUMENT.read_text(encoding="utf-8") == before
    assert {path.stem for path in place.glob("*.svg")} == {*shapes.OPS, "mqa_topk"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": []}, "MISSING mqa_logits M=2048 ctx=16384"),
        ({"gates": []}, "MISSING zero_rows: no gate"),
        ({"errors": {"zero_rows": "exit status 139"}}, "ERROR zero_rows exit status 139"),
        ({"gates": [{"op": "zero_rows", "config": "x", "error": "off"}]}, "RED zero_rows x off"),
    ],
    ids=["no rows", "no gates", "error", "red gate"],
)
def test_write__shows_nothing_of_a_report_that_is_no_result(place, report, change, said, capsys):
    before = drawing.DOCUMENT.read_text(encoding="utf-8")
    drawing.REPORT.write_text(json.dumps(report | change), encoding="utf-8")
    assert drawing.main(["--write"]) == 1
    assert said in capsys.readouterr().err
    assert drawing.DOCUMENT.read_text(encoding="utf-8") == before
    assert list(place.glob("*.svg")) == []


@pytest.mark.usefixtures("place")
def test_report__that_is_missing_is_asked_for(capsys):
    drawing.REPORT.unlink()
    for arguments in (["--write"], []):
        assert drawing.main(arguments) == 1
        assert "h200.json is missing" in capsys.readouterr().err


@pytest.mark.parametrize("marker", [drawing.BEGIN, drawing.END])
def test_document__without_a_marker_stays_as_it_is(place, marker, capsys):
    text = drawing.DOCUMENT.read_text(encoding="utf-8").replace(marker, "")
    drawing.DOCUMENT.write_text(text, encoding="utf-8")
    assert drawing.main(["--write"]) == 1
    assert "kernels.md must hold" in capsys.readouterr().err
    assert drawing.DOCUMENT.read_text(encoding="utf-8") == text
    assert list(place.glob("*.svg")) == []


def test_fused__is_plotted_beside_both_anchors_with_its_times():
    report, found = (json.loads(path.read_text()) for path in (drawing.REPORT, drawing.FUSED))
    shown = drawing.plot(drawing.fused(found, report), "mqa_topk")
    assert drawing.REPORT.with_name("mqa_topk.svg").read_text() == shown
    bars = drawing.cases(drawing.fused(found, report))
    assert len(bars) == 4
    for rows in bars.values():
        ours = drawing.best(rows, "kernel")
        assert ours["median_us"] == min(row["median_us"] for row in rows if row["chosen"])
        assert f"{ours['median_us']:,.2f} us" in shown
        assert "top_k" in drawing.best(rows, "anchor", "deepgemm")["who"]
        assert drawing.others(rows)["who"].startswith("logits + ")
