"""identity, config_match, overlay_applied: each fails for its own fault and passes without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from guards.conftest import Machine, kinds
from twinspark.guards.checks import identity
from twinspark.guards.model import Check
from twinspark.guards.settings import load

if TYPE_CHECKING:
    from twinspark.guards.context import Context

Run = Callable[..., list[Check]]


@pytest.fixture(autouse=True)
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "version", lambda _: "1.0")


@pytest.mark.parametrize("name", ["identity", "config_match", "overlay_applied"])
def test_local_guard__passes_on_a_clean_machine(run: Run, name: str) -> None:
    assert {check.ok for check in run(name)} == {True}


def test_identity__fails_outside_a_release(run: Run, machine: Machine, context: Context) -> None:
    outside = machine.root / "srv/etc"
    outside.mkdir(parents=True)
    settings = replace(context.settings, etc=outside)
    assert kinds(run("identity", settings=settings)) == {"identity": "missing"}


def test_identity__fails_without_an_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "version", lambda name: "none" if name == "vllm" else "1")
    (check,) = run("identity")
    assert check.kind == "missing"
    assert "vllm" in check.detail


def test_config_match__fails_when_nothing_runs(run: Run, machine: Machine) -> None:
    machine.main(0)
    assert kinds(run("config_match")) == {"config_match": "missing"}


def test_config_match__fails_for_another_file(run: Run, machine: Machine) -> None:
    machine.process(100, 1, ["python", "vllm", "serve", "--config", "/srv/other.yaml"])
    assert kinds(run("config_match"))["config_match.argv"] == "wrong"


def test_config_match__fails_for_a_flag_that_overrides_the_file(run: Run, machine: Machine) -> None:
    argv = [
        "python",
        "vllm",
        "serve",
        "--config",
        str(machine.etc / "serve.yaml").removeprefix(str(machine.root)),
    ]
    machine.process(100, 1, argv)
    assert kinds(run("config_match"))["config_match.argv"] == "pass"
    machine.process(100, 1, [*argv, "--max-model-len", "1024"])
    (found,) = [check for check in run("config_match") if check.name == "config_match.argv"]
    assert found.kind == "wrong"
    assert "--max-model-len" in found.detail


def test_config_match__fails_for_an_older_environment(run: Run, machine: Machine) -> None:
    machine.environ(100, {"OMP_NUM_THREADS": "2", "TWINSPARK_RANK": "0"})
    (found,) = [check for check in run("config_match") if check.name == "config_match.environment"]
    assert found.kind == "wrong"
    assert "OMP_NUM_THREADS=2 instead of 1" in found.detail


def test_config_match__fails_when_the_file_was_rendered_after_the_start(
    run: Run, machine: Machine
) -> None:
    machine.write_etc("serve.yaml", (machine.etc / "serve.yaml").read_text() + "seed: 1\n")
    found = kinds(run("config_match", settings=load(machine.etc)))
    assert found["config_match.file"] == "wrong"


def test_overlay_applied__fails_for_a_process_without_a_report(run: Run, machine: Machine) -> None:
    (machine.reports / "worker-103.json").unlink()
    found = run("overlay_applied")
    assert kinds(found)["overlay_applied.reports"] == "missing"
    assert "pid 103" in found[0].detail
    assert kinds(found)["overlay_applied.roles"] == "missing"


def test_overlay_applied__fails_for_a_spawned_process_that_has_no_title_yet(
    run: Run, machine: Machine
) -> None:
    machine.process(104, 102, ["python", "-c", "from multiprocessing.spawn import spawn_main"])
    assert kinds(run("overlay_applied"))["overlay_applied.reports"] == "missing"


def test_overlay_applied__ignores_reports_of_dead_processes(run: Run, machine: Machine) -> None:
    machine.report(99, "worker", patches=[])
    assert {check.ok for check in run("overlay_applied")} == {True}


def test_overlay_applied__fails_for_a_report_older_than_its_process(
    run: Run, machine: Machine
) -> None:
    machine.process(103, 102, ["VLLM::Worker"], age_ticks=10**6)  # the pid was used again
    found = run("overlay_applied")
    assert found[0].kind == "missing"
    assert "older" in found[0].detail


@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_overlay_applied__fails_when_one_process_differs(
    run: Run, machine: Machine, state: str
) -> None:
    patches = [
        {"id": "exit-status", "state": state, "reason": "x"},
        {"id": "f12", "state": "skipped"},
    ]
    machine.report(103, "worker", patches=patches)
    assert kinds(run("overlay_applied"))["overlay_applied.same_set"] == "wrong"


def test_overlay_applied__takes_armed_for_held(run: Run, machine: Machine) -> None:
    patches = [{"id": "exit-status", "state": "armed"}, {"id": "f12", "state": "skipped"}]
    machine.report(103, "worker", patches=patches)
    assert {check.ok for check in run("overlay_applied")} == {True}


def test_overlay_applied__fails_for_an_unreadable_report(run: Run, machine: Machine) -> None:
    (machine.reports / "worker-103.json").write_text("{")
    found = run("overlay_applied")[0]
    assert found.kind == "missing"
    assert "worker-103.json" in found.detail


def test_overlay_applied__fails_when_workers_differ_in_a_fact(run: Run, machine: Machine) -> None:
    machine.process(104, 102, ["VLLM::Worker"])
    for pid, page in ((103, 1002240), (104, 1002240)):
        machine.report(pid, "worker", facts={"kv_layout": {"page": page}})
    assert kinds(run("overlay_applied"))["overlay_applied.facts"] == "pass"
    machine.report(104, "worker", facts={"kv_layout": {"page": 993600}})
    assert kinds(run("overlay_applied"))["overlay_applied.facts"] == "wrong"


def test_overlay_applied__fails_for_what_a_patch_has_seen(run: Run, machine: Machine) -> None:
    machine.report(103, "worker", counters={"nan_rows": 0, "mqa_logits_rows_compared": 9})
    assert kinds(run("overlay_applied"))["overlay_applied.counters"] == "pass"
    for counter in ("nan_rows", "mqa_logits_disagreements", "overlay_late_compilations"):
        machine.report(103, "worker", counters={counter: 2})
        assert kinds(run("overlay_applied"))["overlay_applied.counters"] == "wrong"


def test_overlay_applied__what_is_watched__is_told_and_is_no_fault(
    run: Run, machine: Machine
) -> None:
    counters = {"decode_boundary_disagreements": 3, "late_compilations": 2, "nan_rows": 0}
    machine.report(103, "worker", counters=counters)
    found = next(one for one in run("overlay_applied") if one.name == "overlay_applied.counters")
    assert (found.kind, found.actual) == (
        "pass", "decode_boundary_disagreements 3, late_compilations 2",
    )  # fmt: skip


def test_overlay_applied__does_not_read_another_schema(run: Run, machine: Machine) -> None:
    machine.report(103, "worker", schema="twinspark.overlay/2")
    assert kinds(run("overlay_applied"))["overlay_applied.reports"] == "missing"
