"""Reports: exit status, file format, merge, state; and the command that makes them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from twinspark.guards import cli, recall, report, state
from twinspark.guards.client import BudgetError, Client, Plan, parse_metrics
from twinspark.guards.model import (
    Check,
    Fingerprint,
    NodeReport,
    Report,
    exit_status,
    no_verdict,
    verdict,
)
from twinspark.guards.settings import SettingsError, load, read_env

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guards.conftest import Machine
    from guards.fake_server import FakeServer

PRINT = Fingerprint("0.27.1", "0.1.0", "13.3", "590.1", "6.14")
GOOD = verdict("a", "n", True, "1", "1")
BAD = verdict("b", "n", False, "1", "2")
BROKEN = no_verdict("c", "n", "broken", "why")


def node(rank: int, **changes: object) -> NodeReport:
    made = NodeReport(
        f"spark{rank + 1}", rank, 1.0, "emulated", "guard", 7, PRINT,
        {"nnodes": "2", "kernel": "6.14"}, {"rank": str(rank)}, [GOOD],
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ([GOOD], 0),
        ([GOOD, BAD, BROKEN], 1),
        ([GOOD, BROKEN], 2),
        ([], 2),
        ([no_verdict("x", "n", "skipped", "")], 2),
        ([GOOD, no_verdict("x", "n", "note", "")], 0),
    ],
)
def test_exit_status__is_two_when_nothing_was_checked(checks: list[Check], status: int) -> None:
    assert exit_status(checks) == status


def test_report__survives_its_file(tmp_path: Path) -> None:
    made = Report([node(0, checks=[GOOD, replace(BAD, data={"x": [1, 2]})])])
    report.write(made, tmp_path / "r.json")
    assert report.read(tmp_path / "r.json") == made
    assert json.loads((tmp_path / "r.json").read_text())["schema"] == "twinspark.guard/1"


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "twinspark.guard/9", "nodes": []}'])
def test_report__refuses_another_schema(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(report.ReportError, match=r"r\.json"):
        report.read(tmp_path / "r.json")


def merged(*nodes: NodeReport) -> dict[str, Check]:
    return {check.name: check for check in report.merge([Report([one]) for one in nodes]).checks}


def test_merge__passes_equal_nodes() -> None:
    assert {check.ok for check in merged(node(1), node(0)).values()} == {True}


def test_merge__fails_when_a_node_is_missing() -> None:
    found = merged(node(0))
    assert found["merge.nodes"].kind == "missing"
    assert not found["identity.equal"].ok  # one report is equal to nothing


@pytest.mark.parametrize("equal", [{"nnodes": "2", "kernel": "6.17"}, {"nnodes": "2"}])
def test_merge__fails_for_a_differing_fact(equal: dict[str, str]) -> None:
    found = merged(node(0), node(1, equal=equal))["identity.equal"]
    assert found.kind == "wrong"
    assert "kernel" in found.detail


def test_merge__fails_for_differing_patches() -> None:
    def holds(state: str) -> list[Check]:
        data = {"patches": [["f12", state]]}
        return [verdict("overlay_applied.same_set", "n", True, "", "", data=data)]

    same = merged(node(0, checks=holds("held")), node(1, checks=holds("held")))
    assert same["overlay.equal"].ok
    differ = merged(node(0, checks=holds("held")), node(1, checks=holds("skipped")))
    assert differ["overlay.equal"].kind == "wrong"


def test_merge__fails_for_differing_facts() -> None:
    def states(page: str) -> list[Check]:
        data = {"facts": {"kv_layout": page}}
        return [verdict("overlay_applied.facts", "n", True, "", "", data=data)]

    same = merged(node(0, checks=states("1")), node(1, checks=states("1")))
    assert same["overlay.facts_equal"].ok
    differ = merged(node(0, checks=states("1")), node(1, checks=states("2")))
    assert differ["overlay.facts_equal"].kind == "wrong"


def test_fingerprint__says_what_changed_since_the_last_full_battery(tmp_path: Path) -> None:
    assert "no full battery" in state.fingerprint_check("n", PRINT, tmp_path).detail
    state.record(node(0, battery="full"), tmp_path, whole=True)
    assert "as at the full battery" in state.fingerprint_check("n", PRINT, tmp_path).detail
    newer = replace(PRINT, driver="595.2")
    assert "driver 590.1 -> 595.2" in state.fingerprint_check("n", newer, tmp_path).detail


@pytest.mark.parametrize(
    ("battery", "checks", "whole"),
    [("quick", [GOOD], True), ("full", [GOOD, BAD], True), ("full", [GOOD], False)],
)
def test_fingerprint__is_kept_only_from_a_full_battery_that_passed(
    tmp_path: Path, battery: str, checks: list[Check], whole: bool
) -> None:
    state.record(node(0, battery=battery, checks=checks), tmp_path, whole=whole)
    assert state.last_full(tmp_path) is None
    assert len((tmp_path / state.HISTORY_FILE).read_text().splitlines()) == 1


def test_client__sends_nothing_beyond_its_plan(server: FakeServer) -> None:
    with Client(server.url, "recall", Plan(1, 10, 1)) as client:
        client.complete([1, 20], 1)
        with pytest.raises(BudgetError):
            client.complete([1, 20], 1)
    with Client(server.url, "recall", Plan(9, 10, 9)) as client, pytest.raises(BudgetError):
        client.complete([1] * 11, 1)
    assert len(server.requests) == 1


def test_parse_metrics__sums_engines_and_keeps_other_labels() -> None:
    text = 'a{engine="0",position="1"} 2\na{engine="1",position="1"} 3\n# TYPE\nb 4.5\n'
    assert parse_metrics(text) == {'a{position="1"}': 5.0, "b": 4.5}


def test_read_env__reads_what_the_renderer_writes() -> None:
    assert read_env("# c\n\nA=1\nB='x y'\n", "f") == {"A": "1", "B": "x y"}
    with pytest.raises(SettingsError, match="f:1"):
        read_env("export A=1\n", "f")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("serve.yaml", b"model: [", "serve.yaml:1: expected the node content"),
        ("serve.yaml", b"model: x\nport: :\n", "serve.yaml:2: mapping values are not allowed"),
        ("serve.yaml", b"model: \x00", "serve.yaml: unacceptable character #x0000"),
        ("serve.yaml", b"model: 2026-99-99", "serve.yaml: month must be in 1..12"),
        ("serve.yaml", b"model: x\nport: y", "serve.yaml: port: Input should be a valid integer"),
        ("serve.yaml", b"- 1", "serve.yaml: Input should be a valid dictionary"),
        ("serve.yaml", b"model: x\n\xff", "serve.yaml:2: not UTF-8 text"),
        ("node.env", b"TWINSPARK_RANK=abc", "node.env: TWINSPARK_RANK: Input should be a valid"),
        ("node.env", b"TWINSPARK_NNODES=0", "node.env: TWINSPARK_NNODES: Input should be greater"),
    ],
)
def test_load__names_file_and_place_in_one_line(
    machine: Machine, name: str, text: bytes, said: str
) -> None:
    (machine.etc / name).write_bytes(text)
    with pytest.raises(SettingsError) as caught:
        load(machine.etc)
    assert str(caught.value).startswith(f"{machine.etc}/{said}")
    assert "\n" not in str(caught.value)
    assert "http" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "without answer_logprob, logprob_floor, "),
        ("garbage", "Invalid JSON"),
        ("[]", "Input should be an object"),
    ],
)
def test_oracle__that_is_none_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / recall.ORACLE_FILE
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as caught:
        recall.read_oracle(path)
    assert str(caught.value).startswith(f"{path}: not an oracle: ")
    assert "\n" not in str(caught.value)


@pytest.fixture
def command(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Run `twinspark guard` with arguments, on the fake machine."""
    (machine.root / "srv/models/recall").mkdir(parents=True)
    (machine.root / "srv/models/recall/twinspark-oracle.json").write_text(recall.Oracle().to_json())
    monkeypatch.setattr(cli, "System", lambda: machine.system)

    def one(*words: str) -> int:
        parser = ArgumentParser()
        cli.add_arguments(parser)
        state_dir = str(tmp_path / "state")
        return cli.run(parser.parse_args(["--etc", str(machine.etc), "--state", state_dir, *words]))

    return one


def test_command__that_would_check_nothing_could_not_run(command: Callable[..., int]) -> None:
    assert command("--only", "health", "--skip", "health") == 2
    assert command("--only", "health", "--local") == 2


def test_command__writes_a_report_and_exits_zero(
    command: Callable[..., int], tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    assert command("--only", "health,recall,margin", "--json", str(out)) == 0
    (one,) = report.read(out).nodes
    assert one.rank == 0
    assert [check.name for check in one.checks][-1] == "fingerprint"


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_command__that_cannot_write_its_report_asks_nothing(
    command: Callable[..., int], server: FakeServer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], option: str,
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    assert command("--only", "health", option, str(tmp_path / "file/out.json")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "file/out.json: not below a folder: nothing was run" in said.err
    assert server.requests == []


def test_command__does_not_write_two_reports_into_one_file(
    command: Callable[..., int], server: FakeServer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = str(tmp_path / "out")
    assert command("--only", "health", "--json", out, "--html", out) == 2
    assert f"{out}: one file for two reports" in capsys.readouterr().err
    assert server.requests == []


def test_command__keeps_its_report_beside_a_spoiled_history(
    command: Callable[..., int], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / state.HISTORY_FILE).write_bytes(b"\xff\n")
    assert command("--only", " health, first_token", "--json", str(tmp_path / "out.json")) == 0
    (one,) = report.read(tmp_path / "out.json").nodes
    assert {check.kind for check in one.checks} == {"pass", "note"}
    assert len(state.lines(tmp_path / "state")) == 1


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon"])
def test_command__refuses_a_limit_that_is_none(
    command: Callable[..., int], server: FakeServer, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        command("--only", "health", f"--timeout={given}")
    assert caught.value.code == 2
    assert f"argument --timeout: {given!r} is no time: above 0" in capsys.readouterr().err
    assert server.requests == []


def test_command__complains_on_standard_error(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--only", "nonsense") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("twinspark guard: no guard nonsense")


def test_check_writable__leaves_nothing_behind(tmp_path: Path) -> None:
    report.check_writable(tmp_path / "out.json", None)
    assert list(tmp_path.iterdir()) == []


def test_check_writable__takes_its_folders_away_again(tmp_path: Path) -> None:
    report.check_writable(tmp_path / "new" / "deep" / "out.json", None)
    assert list(tmp_path.iterdir()) == []


def test_command__that_cannot_merge_makes_no_folder_and_names_the_file_once(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, page = tmp_path / "bad.json", tmp_path / "new" / "x.html"
    assert command("--merge", str(bad), "--html", str(page)) == 2
    bad.write_text("{")
    assert command("--merge", str(bad), "--html", str(page)) == 2
    assert not page.parent.exists()
    said = capsys.readouterr().err
    assert "not a report of this version: Invalid JSON" in said
    assert ": :" not in said


def test_command__exits_one_for_a_fault(command: Callable[..., int], server: FakeServer) -> None:
    server.faults.soften = 0.5
    assert command("--only", "margin") == 1


def test_command__leaves_the_api_alone_on_rank_one(
    command: Callable[..., int], machine: Machine, server: FakeServer
) -> None:
    machine.write_etc("node.env", "TWINSPARK_RANK=1\nTWINSPARK_NNODES=2\n")
    assert command("--only", "recall") == 2  # zero checks
    assert server.requests == []


@pytest.mark.parametrize("words", [("--only", "nonsense"), ("--etc", "/nonexistent")])
def test_command__exits_two_when_it_cannot_run(
    command: Callable[..., int], words: tuple[str, str]
) -> None:
    assert command(*words) == 2


def test_command__sends_nothing_in_a_dry_run(
    command: Callable[..., int], server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--dry-run") == 0
    assert server.requests == []
    assert "together" in capsys.readouterr().out


def test_command__merges_files(command: Callable[..., int], tmp_path: Path) -> None:
    files = []
    for one in (node(0), node(1)):
        files.append(tmp_path / f"{one.node}.json")
        report.write(Report([one]), files[-1])
    assert command("--merge", *map(str, files)) == 0
    assert command("--merge", str(files[0])) == 1
    assert command("--merge", str(tmp_path / "none.json")) == 2


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("blocks.8.readback", {"map": 3}),
        ("blocks.8.readback", {
            "documents": 0, "tokens": 1, "stretch": 1, "map": [], "bad": [], "hurt": 0,
            "seed_dose": "",
        }),
        ("neighbours.alone", {"logprobs": ["x"]}),
        ("ladder.256", {"tokens": 256}),
        ("acceptance", {"drafts": None, "rates": [0.5]}),
        ("overlay_applied.same_set", {"patches": [1]}),
        ("overlay_applied.facts", {"facts": {"a": []}}),
    ],
)  # fmt: skip
def test_command__does_not_merge_figures_of_another_shape(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    name: str, data: dict[str, object],
) -> None:  # fmt: skip
    odd = tmp_path / "odd.json"
    report.write(Report([node(0, checks=[replace(GOOD, name=name, data=data)])]), odd)
    assert command("--merge", str(odd), "--html", str(tmp_path / "x.html")) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"twinspark guard: {odd}: data of {name}: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"time": 1e300}, "nodes.0.time"), ({"time": -1e18}, "nodes.0.time"),
     ({"equal": {"nnodes": "abc"}}, "equal of spark1: nnodes")],
)  # fmt: skip
def test_command__does_not_merge_an_odd_node(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    changes: dict[str, object], where: str,
) -> None:  # fmt: skip
    odd = tmp_path / "odd.json"
    report.write(Report([node(0, **changes)]), odd)
    assert command("--merge", str(odd), "--html", str(tmp_path / "x.html")) == 2
    said = capsys.readouterr().err
    assert f"{odd}: " in said
    assert f"{where}: " in said
    assert len(said.splitlines()) == 1


def test_table__shows_every_check() -> None:
    console = Console(record=True, width=200)
    console.print(report.table(Report([node(0, checks=[GOOD, BAD])])))
    text = console.export_text()
    assert "wrong" in text
    assert "1 passed, 1 failed" in text


@pytest.mark.parametrize(
    ("gpu", "word"),
    [
        ("NVIDIA GB10", "on Spark"),
        ("NVIDIA H200", "emulated (NVIDIA H200 GPU"),
        ("none", "emulated (CPU"),
    ],
)
def test_label__claims_a_spark_only_on_a_gb10(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, gpu: str, word: str
) -> None:
    monkeypatch.setattr(type(machine.system), "gpu", lambda _: (gpu, "590"))
    monkeypatch.setattr(cli, "version", lambda _: "0.27.1")
    assert cli.label(machine.system).startswith(word)


def test_label__claims_nothing_where_no_engine_is_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "version", lambda _: cli.ABSENT)
    assert cli.label(machine.system).startswith("no label")


def test_only_variant__refuses_to_guess(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--etc"):
        cli.only_variant(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serve.yaml").write_text("model: x\n")
        if name == "a":
            assert cli.only_variant(tmp_path) == tmp_path / "a"
    with pytest.raises(SettingsError, match="2 variants"):
        cli.only_variant(tmp_path)
