"""What was recorded on a card says what the documents say; `gpu` tests run the arms again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

RESULTS = Path(__file__).parent / "results"
ENGINE = json.loads((RESULTS / "2026-11-30-h200-engine.json").read_text())
PROBES = json.loads((RESULTS / "2026-11-30-h200-probes.json").read_text())
ROW = 95_616


@pytest.mark.parametrize("document", [ENGINE, PROBES])
def test_result__carries_its_provenance(document):
    assert {"card", "date", "command", "n", "label", "software"} <= set(document)
    assert document["label"] == "emulated"


@pytest.mark.parametrize(("runner", "rows"), [("v1", 62), ("v2", 366)])
def test_stock__has_both_faults_in_the_engine(runner, rows):
    arm = ENGINE["arms"][f"{runner}-stock"]
    assert arm["zeroer"]["cleared_by_block"] == [0, 0, 0, ROW, 93_888, 0]
    assert "stride 1024" in arm["c128a"]["capture"]
    assert list(arm["c128a"]["serving"]) == ["stride 128"]
    assert arm["c128a"]["rows_checked"] == rows
    assert arm["c128a"]["rows_where_the_graph_reads"] < rows / 10


@pytest.mark.parametrize("arm", ["v1-overlay", "v2-overlay", "v1-overlay-check"])
def test_overlay__has_neither(arm):
    found = ENGINE["arms"][arm]
    assert found["zeroer"]["cleared_by_block"] == [0, 0, 0, ROW, 0, 0]
    assert {*found["c128a"]["capture"], *found["c128a"]["serving"]} == {"stride 1024"}
    assert found["c128a"]["rows_where_the_graph_reads"] == found["c128a"]["rows_checked"] > 50


def test_kernels__served_in_the_engine_and_agreed():
    found = ENGINE["arms"]["v1-overlay-check"]
    served = {kernel["op"] for kernel in found["kernels"]}
    assert {"hc_prenorm_gemm", "fp8_o_proj", "mqa_logits", "paged_mqa_logits"} <= served
    assert found["counters"]["mqa_logits_rows_compared"] > 10_000
    assert "mqa_logits_disagreements" not in found["counters"]


def test_graph__replays_the_right_rows_with_the_overlay_only():
    assert PROBES["arms"]["stock"]["graph"]["fresh"] == [True] + [False] * 5
    assert PROBES["arms"]["overlay"]["graph"]["fresh"] == [True] * 6
    assert PROBES["arms"]["overlay"]["graph"]["after_a_busy_step"] == [True] * 6


@pytest.mark.gpu
@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no NVIDIA GPU here")
def test_arms__run_again(tmp_path):
    """On a prepared machine (`session.sh install`): every arm ends with a result."""
    script = Path(__file__).with_name("session.sh")
    env = os.environ | {"OUT": str(tmp_path)}
    subprocess.run(["bash", script, "arms"], env=env, check=True, timeout=900)
    assert (tmp_path / "results.tgz").stat().st_size > 1000
