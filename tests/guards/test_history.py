"""The history: what a run leaves, what the trend says about it, and that its size is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from guards.clean_runs import bound
from twinspark.guards import state, trend
from twinspark.guards.model import Check, Fingerprint, NodeReport, verdict
from twinspark.guards.state import HistoryLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guards.conftest import Machine

PRINT = Fingerprint("0.27.1", "0.1.0", "13.3", "590.1", "6.14")


def line(uptime_h: float | None, alone: float, status: int = 0, **changes: object) -> HistoryLine:
    made = HistoryLine(
        1.8e9, "quick", status, 1, [], 60.0, {}, PRINT, uptime_h,
        {"margin": 7.68, "alone": alone, "decoding": 7.68, "prefilling": 7.68},
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def run_report(checks: list[Check]) -> NodeReport:
    return NodeReport("spark1", 0, 1.8e9, "emulated", "quick", 1, PRINT, {}, {}, checks)


def arm(name: str, *margins: float) -> Check:
    return verdict(name, "spark1", True, "", "", data={"margins": list(margins)})


def test_record__keeps_age_and_smallest_margin_of_each_arm(tmp_path: Path) -> None:
    checks = [
        arm("margin", 7.7, 7.6),
        arm("neighbours.alone", 5.0, 7.0, float("nan")),
        verdict("neighbours.agree", "spark1", True, "", "", data={"means": {}}),
    ]
    state.record(run_report(checks), tmp_path, whole=True, uptime_h=12.3456)
    (kept,) = state.lines(tmp_path)
    assert (kept.uptime_h, kept.margins) == (12.346, {"margin": 7.6, "alone": 5.0})


def test_lines__read_those_of_a_version_without_age_and_margins(tmp_path: Path) -> None:
    state.record(run_report([arm("margin", 7.7)]), tmp_path, whole=True)
    path = tmp_path / state.HISTORY_FILE
    older = path.read_text().partition(', "uptime_h"')[0] + "}\n"
    path.write_text(older)
    (kept,) = state.lines(tmp_path)
    assert (kept.uptime_h, kept.margins, kept.whole) == (None, {}, None)


def test_margins__of_a_resumed_battery_have_been_through_a_file() -> None:
    check = verdict("neighbours.alone", "n", True, "", "", data={"margins": [None, 7.0]})
    assert state.smallest_margins([check]) == {"alone": 7.0}


def test_record__keeps_lines_that_nobody_can_read(tmp_path: Path) -> None:
    odd = b'\xff\n{"time": 1e300}\n'
    (tmp_path / state.HISTORY_FILE).write_bytes(odd)
    state.record(run_report([]), tmp_path, whole=True)
    assert (tmp_path / state.HISTORY_FILE).read_bytes().startswith(odd)
    assert [kept.whole for kept in state.lines(tmp_path)] == [True]


def test_history__does_not_grow_beyond_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "HISTORY_LINES", 3)
    for number in range(5):
        report = replace(run_report([]), seed=number)
        state.record(report, tmp_path, whole=True)
    assert [kept.seed for kept in state.lines(tmp_path)] == [2, 3, 4]


def test_steps__give_the_drift_against_earlier_passed_runs_on_the_same_versions() -> None:
    other = replace(PRINT, driver="591")
    lines = [
        line(0.1, 7.7),
        line(1.0, 1.0, status=1),  # a failed run is no yardstick
        line(2.0, 7.5),
        line(9.0, 6.0),
        line(0.1, 3.0, fingerprint=other),
    ]
    every = trend.steps(lines)
    assert [step.drift.get("alone") for step in every] == [None, -6.7, -0.2, -1.6, None]
    assert every[4].changes == ["driver 590.1 -> 591"]


def test_summary__compares_aged_with_fresh_and_says_when_it_cannot() -> None:
    assert trend.summary([]) == ["no run is recorded yet"]
    assert "not asked yet on an engine older" in trend.summary([line(0.2, 7.7)])[1]
    unknown = trend.summary([line(None, 7.7)])
    assert "not asked yet on an engine older" in unknown[1]
    said = "\n".join(trend.summary([line(0.2, 7.7), line(8.0, 5.2, status=1)]))
    assert "2 runs on the present versions, 1 found a fault, engine 0.2 to 8.0 h old" in said
    assert "alone: aged (2 h and more, 1 runs) at least 5.20 nats, fresh 7.70, drift -2.50" in said
    assert "no fresh run" in "\n".join(trend.summary([line(8.0, 5.2)]))


def test_summary__counts_only_runs_that_judged_the_whole_set() -> None:
    lines = [
        line(0.2, 7.7, whole=True),
        line(0.3, 7.7, status=1, whole=False),
        line(0.4, 7.7, status=2, whole=True),
    ]
    said = trend.summary(lines)
    assert said[0].startswith("1 runs on the present versions, 0 found a fault")
    assert said[1] == ("not counted: 1 of some guards only, 1 found a fault; 1 that could not run")


def test_table__shows_age_verdict_and_drift(tmp_path: Path) -> None:
    console = Console(record=True, width=240)
    failed = ["neighbours.alone wrong"]
    lines = [line(0.2, 7.7), line(8.0, 5.2, status=1, whole=False, failed=failed)]
    console.print(trend.table(lines, tmp_path))
    text = console.export_text()
    for word in (
        "8.0",
        "neighbours.alone wrong",
        "alone 5.20 (-2.50)",
        "drift -2.50",
        "quick (part)",
    ):
        assert word in text


def test_history__of_a_guard_run_has_the_margin_of_the_fake_server(
    run: Callable[..., list[Check]], tmp_path: Path
) -> None:
    state.record(run_report(run("neighbours")), tmp_path, whole=False, uptime_h=None)
    (kept,) = state.lines(tmp_path)
    assert set(kept.margins) >= {"alone", "decoding"}
    assert kept.margins["alone"] == pytest.approx(7.68, abs=0.01)


def test_uptime__is_that_of_the_units_main_process(machine: Machine) -> None:
    hours = machine.system.uptime_hours("vllm-deepseek-mxfp4@lab-cpu.service")
    assert hours is not None
    assert hours > 1000  # the fake machine booted in 2023
    machine.main(0)
    assert machine.system.uptime_hours("none.service") is None


@pytest.mark.parametrize(
    ("alarms", "runs", "upper"), [(0, 50, 0.0582), (0, 3, 0.6316), (1, 50, 0.0914), (3, 3, 1.0)]
)
def test_bound__is_clopper_pearsons(alarms: int, runs: int, upper: float) -> None:
    assert bound(alarms, runs) == pytest.approx(upper, abs=1e-4)
