"""The deeper guards: each against its own fault, and clean on a healthy server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from guards.conftest import kinds
from twinspark.guards import report, runner, state
from twinspark.guards.checks import blocks, ladder, logs, throughput, trigger
from twinspark.guards.exam import ContentExam
from twinspark.guards.model import Check, Report, verdict
from twinspark.guards.registry import GUARDS

if TYPE_CHECKING:
    from pathlib import Path

    from guards.conftest import Machine
    from guards.fake_server import FakeServer
    from twinspark.guards.context import Context

Run = Callable[..., list[Check]]
REAL = {"exam": ContentExam(), "oracle": None}
DEEP = ["neighbours", "blocks", "ladder", "acceptance", "trigger", "text", "throughput", "counters"]
CHATS = {
    "small harbour": "Two boats lay at the quay. A gull walked along the wall.",
    "merges two sorted": "def merge(a, b):\n    return sorted(a + b)  # short",
    "HTML page": "<h1>Hours</h1><ul><li>one</li></ul>",
    "square root": "Suppose it were p/q in lowest terms; then p is even, and so is q.",
    "\u4e2d\u6587": "\u79cb\u5929\u7684\u6811\u53f6\u7ea2\u4e86\u3002",
    "\u043b\u0435\u0441": "\u0417\u0438\u043c\u043e\u0439 \u043b\u0435\u0441 \u0442\u0438\u0445.",
    "cups": "Answer: 42",
    "runners": "So she is third.\nAnswer: 3",
    "17 * 23": "391 - 52\nAnswer: **339**",
    "Lovelace": '{"name": "Ada Lovelace", "born": 1815}',
    "Complete the last line": "0",
}


@pytest.fixture
def real(server: FakeServer) -> FakeServer:
    server.faults.chat = dict(CHATS)
    return server


@pytest.fixture
def speculating(context: Context) -> dict[str, object]:
    return {"settings": replace(context.settings, speculates=True)}


@pytest.mark.parametrize("name", DEEP)
def test_deep_guard__passes_on_a_healthy_server(
    run: Run, server: FakeServer, context: Context, tmp_path: Path, name: str
) -> None:
    server.faults.acceptance = [1.0, 1.0, 1.0, 1.0, 1.0]
    settings = replace(context.settings, speculates=True)
    checks = run(name, settings=settings)
    assert {check.ok for check in checks} == {True}
    # what a guard writes is what a merge reads
    report.write(Report([runner.node_report(context, "emulated", checks)]), tmp_path / "r.json")
    assert report.read(tmp_path / "r.json").every() == checks


@pytest.mark.parametrize("name", ["neighbours", "blocks", "ladder", "text", "structured", "puzzle"])
def test_deep_guard__passes_on_a_healthy_real_model(run: Run, real: FakeServer, name: str) -> None:
    assert real.faults.chat
    assert {check.ok for check in run(name, **REAL)} == {True}


@pytest.mark.parametrize("name", ["structured", "puzzle"])
def test_deep_guard__is_skipped_where_the_recall_model_cannot(run: Run, name: str) -> None:
    assert kinds(run(name)) == {name: "skipped"}


@pytest.mark.parametrize("name", [*DEEP, "structured", "puzzle"])
def test_deep_guard__says_unreachable(
    run: Run, server: FakeServer, context: Context, name: str
) -> None:
    server.stop()
    changes = REAL if name in {"structured", "puzzle"} else {}
    settings = replace(context.settings, speculates=True)
    assert set(kinds(run(name, settings=settings, **changes)).values()) == {"unreachable"}


def test_blocks__names_the_damaged_block_while_own_answers_stay_right(
    run: Run, server: FakeServer
) -> None:
    server.faults.zero_neighbour = True
    run("recall")  # single requests do not set it off
    found = {check.name: check for check in run("blocks")}
    assert found["blocks.8.own"].ok
    readback = found["blocks.8.readback"]
    assert readback.kind == "wrong"
    assert readback.data is not None
    assert {block for _, block, *_ in readback.data["bad"]} == {1}
    assert any("x" in row for row in readback.data["map"])


@pytest.mark.parametrize("name", ["recall", "margin", "ladder", "neighbours"])
def test_single_request_guards__do_not_see_the_neighbours_block(
    run: Run, server: FakeServer, name: str
) -> None:
    server.faults.zero_neighbour = True
    assert {check.ok for check in run(name)} == {True}


def test_blocks__shows_the_dose_response(run: Run, server: FakeServer, context: Context) -> None:
    server.faults.zero_neighbour = True
    depth = replace(context.depth, doses=(1, 2, 4))
    found = kinds(run("blocks", depth=depth))
    assert [found[f"blocks.{n}.readback"] for n in (1, 2, 4)] == ["pass", "pass", "wrong"]


def test_blocks__three_documents_fit_into_one_step(context: Context) -> None:
    for budget in (1024, 2048, 4096, 8192):
        settings = replace(context.settings, max_num_batched_tokens=budget)
        (shape,) = blocks.shapes(replace(context, settings=settings))
        assert shape.documents == 8
        assert 3 * shape.tokens <= budget
    settings = replace(context.settings, max_num_seqs=2)
    small = replace(context, settings=settings)
    assert kinds(runner.run_one(blocks.GUARD, small)) == {"blocks": "skipped"}


def test_blocks__full_battery_reads_about_as_many_blocks_as_the_seed(context: Context) -> None:
    settings = replace(
        context.settings, max_model_len=2**20, block_size=256, max_num_batched_tokens=8192
    )
    spark = replace(context, settings=settings, exam=ContentExam(), oracle=None, battery="full")
    long = blocks.shapes(spark)[-1]
    assert (long.name, long.documents) == ("blocks.long", 8)
    assert 600 <= long.documents * long.facts <= 800


@pytest.mark.parametrize(
    ("fault", "arm"),
    [
        ("soft_alone", "neighbours.alone"),
        ("soft_beside_decode", "neighbours.decoding"),
        ("soft_beside_prefill", "neighbours.prefilling"),
    ],
)
def test_neighbours__fails_in_the_arm_of_the_fault_alone(
    run: Run, server: FakeServer, fault: str, arm: str
) -> None:
    setattr(server.faults, fault, True)
    found = kinds(run("neighbours"))
    assert found[arm] == "wrong"
    assert found["neighbours.agree"] == "wrong"
    others = {"neighbours.alone", "neighbours.decoding", "neighbours.prefilling"} - {arm}
    assert {found[name] for name in others} == {"pass"}


def test_neighbours__does_not_measure_alone_on_a_busy_server(run: Run, server: FakeServer) -> None:
    server.faults.busy = 2
    found = kinds(run("neighbours"))
    assert found["neighbours.alone"] == "skipped"
    assert found["neighbours.decoding"] == "pass"


def test_ladder__fails_on_the_rung_that_loses_facts(run: Run, server: FakeServer) -> None:
    server.faults.lose = 1.0
    assert set(kinds(run("ladder")).values()) == {"wrong"}


def test_ladder__ends_at_the_context_limit_in_a_full_battery(context: Context) -> None:
    full = replace(context, battery="full")
    assert ladder.rungs(full) == [256, 512, 32768 - 64]
    assert ladder.rungs(context) == [256, 512]


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([0.41, 0.2, 0.1], "too low"),
        ([0.99, 0.98, 0.97], "too high"),
        ([0.74, 0.8, 0.1], "later position"),
    ],
)
def test_acceptance__alarms_on_both_sides(
    run: Run, real: FakeServer, speculating: dict[str, object], rates: list[float], word: str
) -> None:
    real.faults.acceptance = rates
    real.drafts = 0
    (check,) = run("acceptance", **REAL, **speculating)
    assert check.kind == "wrong"
    assert word in check.detail


def test_acceptance__fails_for_rates_that_are_no_numbers(
    run: Run, real: FakeServer, speculating: dict[str, object]
) -> None:
    real.accepted = [float("nan")] * 5
    assert kinds(run("acceptance", **REAL, **speculating)) == {"acceptance": "wrong"}


def test_acceptance__needs_near_perfect_copies_of_the_recall_model(
    run: Run, server: FakeServer, speculating: dict[str, object]
) -> None:
    server.faults.acceptance = [0.7, 0.5]
    assert kinds(run("acceptance", **speculating)) == {"acceptance": "wrong"}


def test_acceptance__fails_when_nothing_is_drafted(
    run: Run, server: FakeServer, speculating: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "speculate", lambda _: None)
    assert kinds(run("acceptance", **speculating)) == {"acceptance": "missing"}


def test_neighbours__does_not_take_a_server_that_does_not_say_for_idle(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "metrics", lambda: "<html>a page</html>")
    (check,) = run("neighbours")
    assert (check.kind, check.detail) == ("wrong", "/metrics: no vllm:num_requests_running")


def test_acceptance__is_not_measured_on_a_busy_server(
    run: Run, server: FakeServer, speculating: dict[str, object]
) -> None:
    server.faults.busy = 1
    assert kinds(run("acceptance", **speculating)) == {"acceptance": "skipped"}


def test_trigger__fails_for_a_wrong_answer(run: Run, server: FakeServer) -> None:
    server.faults.lose = 1.0
    assert kinds(run("trigger"))["trigger.answers"] == "wrong"


def test_trigger__sends_three_long_and_a_short_request_together(
    run: Run, server: FakeServer, context: Context
) -> None:
    assert {check.ok for check in run("trigger")} == {True}
    sizes = sorted(len(body["prompt"]) for _, body in server.requests)
    assert len(sizes) == 4
    assert sizes[0] <= 40
    assert sizes[1] >= trigger.length(context)


def test_trigger__thinks_and_leaks_on_a_real_model(run: Run, real: FakeServer) -> None:
    real.faults.chat["Complete the last line"] = "<\uff5cDSML\uff5ctool_calls> 1 ######### 2"
    found = {check.name: check for check in run("trigger", **REAL)}
    assert found["trigger.text"].kind == "wrong"
    assert "markup_leak" in found["trigger.text"].detail
    thinking = [body for path, body in real.requests if "chat" in path]
    assert len(thinking) == 3
    assert thinking[0]["chat_template_kwargs"] == {"thinking": True}


@pytest.mark.parametrize(
    ("text", "alarm"),
    [
        ("A quay. <\uff5cDSML\uff5ctool_calls> And a boat.", "markup_leak"),
        ("Two boats \u043b\u043e\u0434\u043a\u0430 lay there.", "language_mixing"),
        ("Two boats ########### lay there.", "hash_burst"),
        ("Two boats lay there. " * 20, "repetition_loop"),
        ("", "empty"),
    ],
)
def test_text__fails_for_each_kind_of_damage(
    run: Run, real: FakeServer, text: str, alarm: str
) -> None:
    real.faults.chat["small harbour"] = text
    found = {check.name: check for check in run("text", **REAL)}
    assert found["text.prose"].kind == "wrong"
    assert alarm in found["text.prose"].detail
    assert found["text.code"].ok


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"tool_arguments": '{"city": "Utrecht"}'}, "wrong"),
        ({"tool_arguments": '{"city": "Utrecht", "unit": "kelvin"}'}, "wrong"),
        ({"tool_finish": "stop"}, "wrong"),
        ({"cut": True}, "truncated"),
    ],
)
def test_structured__fails_for_a_bad_tool_call(
    run: Run, real: FakeServer, changes: dict[str, object], kind: str
) -> None:
    for name, value in changes.items():
        setattr(real.faults, name, value)
    assert kinds(run("structured", **REAL))["structured.tool_call"] == kind


@pytest.mark.parametrize("text", ["Ada, 1815", '{"name": "Ada"}', '{"name": "Ada", "born": 1816}'])
def test_structured__fails_for_json_outside_its_schema(
    run: Run, real: FakeServer, text: str
) -> None:
    real.faults.chat["Lovelace"] = text
    assert kinds(run("structured", **REAL))["structured.json_schema"] == "wrong"


def test_puzzle__tells_wrong_from_truncated(run: Run, real: FakeServer) -> None:
    real.faults.chat["cups"] = "Answer: 41"
    assert kinds(run("puzzle", **REAL))["puzzle.0"] == "wrong"
    real.faults.chat["cups"], real.faults.cut = "First there are 36", True
    assert kinds(run("puzzle", **REAL))["puzzle.0"] == "truncated"


def test_throughput__fails_below_its_floor(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throughput.FLOORS, "prefill", 1e9)
    assert kinds(run("throughput"))["throughput.prefill"] == "slow"


def test_throughput__takes_half_the_median_of_earlier_runs_on_the_same_versions(
    run: Run, context: Context, tmp_path: Path
) -> None:
    def record(rate: float) -> None:
        data = {"tokens_per_s": rate}
        check = verdict("throughput.decode.1", "n", True, "", "", data=data)
        made = replace(runner.node_report(context, "emulated", [check]), checks=[check])
        state.record(made, tmp_path, whole=False)

    record(1e6)
    record(1e6)
    assert kinds(run("throughput", state=tmp_path))["throughput.decode.1"] == "pass"  # two are few
    record(1e6)
    found = kinds(run("throughput", state=tmp_path))
    assert (found["throughput.decode.1"], found["throughput.prefill"]) == ("slow", "pass")


def test_throughput__is_no_verdict_on_an_overloaded_machine_unless_the_fixed_floor_is_missed(
    run: Run, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "_floor", lambda *_: (1e9, "earlier runs"))
    cores = os.cpu_count() or 1
    for load, kind in ((1.9, "slow"), (2.1, "skipped")):
        (machine.root / "proc/loadavg").write_text(f"{load * cores} 1 1 1/1 1\n")
        assert set(kinds(run("throughput")).values()) == {kind}
    monkeypatch.setitem(throughput.FLOORS, "prefill", 1e8)
    assert kinds(run("throughput"))["throughput.prefill"] == "slow"


def test_throughput__measures_a_slow_figure_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(_: Context, __: object, attempt: int) -> dict[str, float]:
        return {
            "prefill": (50.0, 500.0)[attempt],
            "decode.1": 10.0,
            "decode.4": (3.0, 2.0)[attempt],
        }

    monkeypatch.setattr(throughput, "_measure", measured)
    found = kinds(run("throughput"))
    assert found == {
        "throughput.prefill": "pass", "throughput.decode.1": "pass", "throughput.decode.4": "slow",
    }  # fmt: skip


def test_counters__fails_for_a_corrupted_request(run: Run, server: FakeServer) -> None:
    server.faults.corrupted = 3
    assert kinds(run("counters")) == {"counters.corrupted": "wrong"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("../aten/Indexing.cu: indexSelectSmallIndex: block: [0,0,0]", "logs.fatal"),
        ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered", "logs.fatal"),
        ("Failed to load plugin twinspark", "logs.fatal"),
        ("decode topk_width=128", "logs.stride_widths"),
    ],
)
def test_logs__fails_for_a_line_that_must_not_be_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, name: str
) -> None:
    clean = ["INFO started", "decode topk_width=512", "decode topk_width=256"]
    monkeypatch.setattr(logs, "journal", lambda _: clean)
    assert kinds(run("logs")) == {"logs.fatal": "pass", "logs.stride_widths": "pass"}
    monkeypatch.setattr(logs, "journal", lambda _: [*clean, line])
    assert kinds(run("logs"))[name] == "wrong"


@pytest.mark.parametrize(
    ("context_length", "widths"), [(2**20, {512, 8192}), (32768, {512, 256}), (16385, {512, 256})]
)
def test_legitimate_widths__are_the_bucket_and_the_width_at_capture(
    context_length: int, widths: set[int]
) -> None:
    assert logs.legitimate_widths(context_length) == widths


def test_every_guard__has_a_purpose_and_a_place() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
    for guard in GUARDS:
        assert guard.title
        assert guard.scope in {"local", "api"}
        assert guard.batteries
