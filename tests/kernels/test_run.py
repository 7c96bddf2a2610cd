"""The benchmark's driver without a GPU: stand-ins for its workers and for the card's own rates."""
# ruff: noqa: E402 - the scripts are no package

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPTS = Path(__file__).parents[2] / "engine_overlay/benchmarks"
sys.path.insert(0, str(SCRIPTS))
import run
import shapes

TOP = {
    "copy_bytes_per_s": 4e12,
    "memset_bytes_per_s": 4e12,
    "write_bytes_per_s": 5e12,
    "fp8_flop_per_s": 1e15,
}
OP = "zero_rows"


def timed(op: str) -> list[dict]:
    figures = dict.fromkeys(("median_us", "p10_us", "p90_us", "floor_us", "of_floor"), 1.0)
    row = figures | {"op": op, "who": "ours", "kind": "kernel", "tflops": 1.0, "gbps": 1.0}
    return [row | {"shape": shape.name, "chosen": True} for shape in shapes.of(op)]


def result(op: str) -> dict:
    return {"gates": [{"op": op, "config": "x", "relative_error": 0.0}], "rows": timed(op)}


class Workers:
    """What each worker leaves and its exit status; by default a good result and 0."""

    def __init__(self) -> None:
        self.left: dict[tuple[str, bool], dict | None] = {}
        self.codes: dict[tuple[str, bool], int] = {}
        self.warming: dict[str, int] = {}

    def spawn(self, op, folder, _args, *, gate_only):
        left = self.left.get((op, gate_only), result(op))
        if left is not None:
            (folder / f"{op}{'.gate' if gate_only else ''}.json").write_text(json.dumps(left))
        code = self.codes.get((op, gate_only), 0)
        return SimpleNamespace(wait=lambda: code)

    def warm(self, _ops, _folder):
        return {
            name: SimpleNamespace(wait=lambda code=code: code)
            for name, code in self.warming.items()
        }


@pytest.fixture
def workers(monkeypatch):
    fake = Workers()
    monkeypatch.setattr(run, "_spawn", fake.spawn)
    monkeypatch.setattr(run, "warm_all", fake.warm)
    monkeypatch.setattr(run, "ceilings", lambda: TOP)
    monkeypatch.setattr(run, "provenance", dict)
    monkeypatch.setattr(run, "no_card", str)
    return fake


def drive(out: Path, *more: str) -> int:
    return run.main(["--out", str(out), "--ops", OP, *more])


@pytest.mark.usefixtures("workers")
def test_run__that_measures_all_is_green(tmp_path):
    assert drive(tmp_path) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["errors"] == {}
    assert len(report["rows"]) == len(shapes.of(OP))
    assert len(report["gates"]) == 1


@pytest.mark.usefixtures("workers")
def test_run__leaves_other_files_of_its_folder_alone(tmp_path):
    (tmp_path / "h200.json").write_text("{}")
    (tmp_path / f"{OP}.json").write_text("{}")
    assert drive(tmp_path) == 0
    names = {"h200.json", f"{OP}.json", "report.json"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize("gate_only", [False, True])
def test_run__is_red_where_a_worker_dies_beside_an_older_result(workers, tmp_path, gate_only):
    (tmp_path / f"{OP}.json").write_text(json.dumps(result(OP)))
    workers.left[OP, gate_only] = None
    workers.codes[OP, gate_only] = 139
    assert drive(tmp_path) == 1
    errors = json.loads((tmp_path / "report.json").read_text())["errors"]
    assert errors == {f"gating {OP}" if gate_only else OP: "exit status 139"}


def test_run__is_red_where_a_worker_dies_after_it_wrote(workers, tmp_path):
    workers.codes[OP, False] = -11
    assert drive(tmp_path) == 1


def test_run__is_red_where_a_gate_was_red_before_the_timing(workers, tmp_path):
    red = {"op": OP, "config": "x", "error": "RedGateError: 1 logit"}
    workers.left[OP, True] = {"gates": [red], "rows": []}
    assert drive(tmp_path) == 1
    assert red in json.loads((tmp_path / "report.json").read_text())["gates"]


def test_run__is_red_where_an_anchor_did_not_compile(workers, tmp_path, capsys):
    workers.warming = {"warming fp8_o_proj:0:deepgemm": 1}
    assert drive(tmp_path) == 1
    assert "fp8_o_proj:0:deepgemm exit status 1" in capsys.readouterr().out


@pytest.mark.usefixtures("workers")
def test_run__is_red_where_an_operation_was_not_started(tmp_path):
    assert drive(tmp_path, "--limit", "-1") == 1


def changed(**row) -> dict:
    left = result(OP)
    left["rows"][0] |= row
    return left


@pytest.mark.parametrize(
    "left",
    [
        {"gates": [], "rows": []},
        {"gates": result(OP)["gates"], "rows": []},
        {"gates": [], "rows": timed(OP)},
        changed(error="out of resources"),
        changed(chosen=False),
        changed(kind="anchor"),
    ],
    ids=["nothing", "no times", "no gate", "chosen failed", "none chosen", "only an anchor"],
)
def test_run__is_red_where_something_was_not_measured(workers, tmp_path, left):
    workers.left[OP, False] = left
    assert drive(tmp_path) == 1


def test_run__is_red_where_an_anchor_failed_and_green_where_a_finalist_did(workers, tmp_path):
    for kind, code in (("anchor", 1), ("kernel", 0)):
        left = result(OP)
        more = {"who": "other", "kind": kind, "chosen": False, "error": "no"}
        left["rows"].append(left["rows"][0] | more)
        workers.left[OP, False] = left
        assert drive(tmp_path) == code


@pytest.mark.usefixtures("workers")
def test_run__drops_an_older_report_first(tmp_path, monkeypatch):
    (tmp_path / "report.json").write_text("{}")

    def broken():
        raise RuntimeError("the card is gone")

    monkeypatch.setattr(run, "ceilings", broken)
    with pytest.raises(RuntimeError):
        drive(tmp_path)
    assert not (tmp_path / "report.json").exists()


@pytest.mark.parametrize("ops", [["nonsense"], []])
@pytest.mark.usefixtures("workers")
def test_run__refuses_operations_that_it_does_not_know(tmp_path, ops, capsys):
    with pytest.raises(SystemExit) as stopped:
        run.main(["--out", str(tmp_path), "--ops", *ops])
    assert stopped.value.code == 2
    assert "--ops" in capsys.readouterr().err


@pytest.mark.usefixtures("workers")
def test_run__without_a_card_says_so_and_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "no_card", lambda: "no CUDA device")
    monkeypatch.setattr(run, "_spawn", None)
    assert drive(tmp_path / "new") == 1
    assert capsys.readouterr().err == "no CUDA device\n"
    assert not (tmp_path / "new").exists()


def test_workers__that_are_real_report_their_exit_status():
    ends = {"dies": "import os; os._exit(139)", "ends": ""}
    started = {name: subprocess.Popen([sys.executable, "-c", code]) for name, code in ends.items()}
    assert run.failed(started) == {"dies": "exit status 139"}


def test_floor__of_what_only_writes_is_the_fastest_way_to_write():
    (zero,) = [shape for shape in shapes.of("zero_rows") if shape.sizes["rows"] == 512]
    assert run.floor_us(zero, TOP) == pytest.approx(zero.bytes / 5e12 * 1e6)
    assert run.floor_us(zero, TOP | {"write_bytes_per_s": 1e12}) == pytest.approx(
        zero.bytes / 4e12 * 1e6
    )
    (product,) = [shape for shape in shapes.of("hc_prenorm_gemm") if shape.sizes["rows"] == 8192]
    assert run.floor_us(product, TOP) == pytest.approx(product.bytes / 4e12 * 1e6)
