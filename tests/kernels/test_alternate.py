# ruff: noqa: E402 - the scripts are no package, and are skipped before they import what is not there
"""Kernels in turns, without a GPU: what it refuses, and that what it left out fails it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import alternate
import cases
import cases_common
import run
import shapes
import timing

pytestmark = pytest.mark.vllm
CASES = sum(len(shapes.of(op)) for op in alternate.OPS)


def none_to_warm(_ops, folder):
    assert folder.is_dir()
    return {}


@pytest.fixture
def ready(monkeypatch):
    monkeypatch.setattr(alternate, "no_anchor", str)
    monkeypatch.setattr(alternate, "warm_all", none_to_warm)
    monkeypatch.setattr(alternate, "provenance", dict)
    monkeypatch.setattr(alternate, "pairs", lambda _: [("ours", "deepgemm", [], [])])
    row = {"ratio": 1.0, "ratio_range": [1.0, 1.0], "ours_us": 1.0, "anchor_us": 1.0}
    monkeypatch.setattr(alternate, "rounds", lambda *_: row)


@pytest.mark.usefixtures("ready")
def test_turns__of_every_case_are_green_in_a_new_folder(tmp_path):
    out = tmp_path / "new" / "turns.json"
    assert alternate.main(["--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert (len(report["rows"]), report["left"], report["errors"]) == (CASES, [], {})


@pytest.mark.usefixtures("ready")
def test_turns__that_were_left_out_fail(tmp_path, capsys):
    out = tmp_path / "turns.json"
    assert alternate.main(["--out", str(out), "--limit", "-1"]) == 1
    assert len(json.loads(out.read_text())["left"]) == CASES
    assert "fp8_o_proj T=6: left out, out of time" in capsys.readouterr().err


@pytest.mark.usefixtures("ready")
def test_turns__whose_anchor_did_not_compile_fail(tmp_path, monkeypatch, capsys):
    dead = {"warming x": SimpleNamespace(wait=lambda: -11)}
    monkeypatch.setattr(alternate, "warm_all", lambda *_: dead)
    assert alternate.main(["--out", str(tmp_path / "turns.json")]) == 1
    assert "warming x: exit status -11" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("card", "said"), [("no CUDA device", "no CUDA device"), ("", "no DeepGEMM")]
)
def test_turns__without_a_card_or_an_anchor_say_so(tmp_path, monkeypatch, capsys, card, said):
    monkeypatch.setattr(alternate, "no_card", lambda: card)
    monkeypatch.setattr(cases_common, "deep_gemm", lambda: None)
    assert alternate.main(["--out", str(tmp_path / "turns.json")]) == 1
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("sm_90", [True, False])
def test_pairs__are_what_dispatch_takes_on_any_card(monkeypatch, sm_90):
    asked = []

    def bench(_, configs):
        asked.extend(configs)
        made = cases_common.Bench()
        for config in configs:
            for splits in (1, 2):
                made.add(config, "sm_121: its reason", [], f" splits={splits}")
        made.anchors = {"deepgemm splits=1": [], "torch": []}
        return made

    monkeypatch.setattr(alternate, "sm_90", lambda: sm_90)
    monkeypatch.setitem(cases.GATES, "hc_prenorm_gemm", lambda _: 0.0)
    monkeypatch.setitem(cases.BENCHES, "hc_prenorm_gemm", bench)
    one = timing.Timing(1.0, 1.0, 1.0, 1, 1)
    monkeypatch.setattr(timing, "measure", lambda *_, **__: one)
    found = alternate.pairs(shapes.of("hc_prenorm_gemm")[-1])
    assert found[0][0].startswith("sm_121: its reason")
    assert found[0][1] == "deepgemm splits=1"
    assert len(found) == (4 if sm_90 else 1)
    assert asked == [None, *(alternate.UNSPLIT if sm_90 else ())]


def test_provenance__without_nvidia_smi_is_one_without_its_line(monkeypatch):
    properties = {
        "get_device_name": lambda _: "a card",
        "get_device_capability": lambda _: (9, 0),
    }
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**properties))

    def missing(*_, **__):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)
    made = run.provenance()
    assert (made["nvidia_smi"], made["device"], made["capability"]) == ("", "a card", "sm_90")
