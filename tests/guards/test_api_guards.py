"""The guards of the first set against a server with one fault at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from guards.conftest import kinds
from twinspark.guards import recall, runner
from twinspark.guards.client import Client, ForeignError, Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.exam import CHARACTERS_A_TOKEN, ContentExam, Exam, Question, RecallExam
from twinspark.guards.model import Check
from twinspark.guards.wire import Completion

if TYPE_CHECKING:
    from guards.fake_server import FakeServer
    from twinspark.guards.context import Context

Run = Callable[..., list[Check]]
FIRST_SET = ["health", "first_token", "determinism", "recall", "margin"]


@pytest.mark.parametrize("name", FIRST_SET)
def test_api_guard__passes_on_a_healthy_server(run: Run, server: FakeServer, name: str) -> None:
    checks = run(name)
    assert {check.ok for check in checks} == {True}, checks
    assert server.requests


@pytest.mark.parametrize("name", ["determinism", "recall", "margin"])
def test_api_guard__judges_a_real_model_by_content(run: Run, name: str) -> None:
    checks = run(name, exam=ContentExam(), oracle=None)
    assert all(check.ok for check in checks if check.kind != "skipped"), checks


@pytest.mark.parametrize("name", FIRST_SET)
def test_api_guard__says_unreachable(run: Run, server: FakeServer, name: str) -> None:
    server.stop()
    assert set(kinds(run(name)).values()) == {"unreachable"}


@pytest.mark.parametrize("name", FIRST_SET[1:])
def test_api_guard__says_refused_when_health_lies(run: Run, server: FakeServer, name: str) -> None:
    server.faults.status = 500
    assert set(kinds(run("health")).values()) == {"pass"}
    (check,) = run(name)
    assert check.kind == "refused"
    assert "500" in check.detail


@pytest.mark.parametrize("name", ["health", "determinism", "recall", "margin"])
def test_api_guard__calls_a_page_in_place_of_an_answer_wrong(
    run: Run, server: FakeServer, name: str
) -> None:
    server.faults.html = True
    (check,) = run(name)
    assert check.kind == "wrong"
    assert "not what the API promises" in check.detail
    assert "Reply" not in check.detail
    assert "_Models" not in check.detail


def test_tokenize__that_answers_a_page_is_wrong(server: FakeServer) -> None:
    server.faults.html = True
    with Client(server.url, "recall", Plan(1)) as client, pytest.raises(ForeignError) as caught:
        client.tokenize("a")
    assert str(caught.value).startswith("/tokenize: not what the API promises: Invalid JSON")


def test_api_guard__calls_a_body_that_cannot_be_decoded_wrong(run: Run, server: FakeServer) -> None:
    server.faults.encoding = "gzip"
    for name in ("health", "first_token", "recall"):
        server.faults.raw = {"/v1/completions": "no gzip"}
        (check,) = run(name)
        assert check.kind == "wrong"
        assert "not what the API promises" in check.detail


@pytest.mark.parametrize(
    "chunk",
    [
        '{"choices": [3]}', '{"choices": "x"}', '{"choices": {"a": 1}}',
        '{"choices": [{"text": null}]}', '{"choices": [{"te',
    ],
)  # fmt: skip
def test_first_token__calls_a_malformed_chunk_wrong(
    run: Run, server: FakeServer, chunk: str
) -> None:
    server.faults.raw = {"/v1/completions": f"data: {chunk}\n\n"}
    (check,) = run("first_token")
    assert check.kind == "wrong"
    assert chunk in check.detail


def test_first_token__says_what_ended_the_stream(run: Run, server: FakeServer) -> None:
    error = 'data: {"error": {"message": "EngineDeadError", "code": 500}}\n\n'
    server.faults.raw = {"/v1/completions": error}
    (check,) = run("first_token")
    assert (check.kind, check.detail) == ("refused", "/v1/completions: EngineDeadError")


def test_first_token__does_not_wait_for_the_end_of_an_endless_stream(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults.endless = True
    assert kinds(run("first_token", timeout=0.3)) == {"first_token": "slow"}
    monkeypatch.setattr("twinspark.guards.client.MOST_BYTES", 1000)
    assert kinds(run("first_token")) == {"first_token": "wrong"}


@pytest.mark.parametrize("name", ["determinism", "neighbours"])
def test_api_guard__calls_an_impossible_logprob_wrong(
    run: Run, server: FakeServer, name: str
) -> None:
    for nats in (1e308, -5.0):
        server.faults.soften = nats
        (check,) = run(name)
        assert check.kind == "wrong"
        assert "token_logprobs" in check.detail


@pytest.mark.parametrize(
    ("name", "tokens"), [("ladder", "[null]"), ("ladder", "[1, 2, 3]"), ("blocks", "[1, 2, 3]")]
)
def test_content_exam__does_not_build_on_an_odd_tokenizer(
    run: Run, server: FakeServer, name: str, tokens: str
) -> None:
    server.faults.raw = {"/tokenize": f'{{"tokens": {tokens}}}'}
    (check,) = run(name, exam=ContentExam(), oracle=None)
    assert check.kind == "wrong"
    assert check.detail.startswith("/tokenize: ")
    assert len(server.requests) == 1


def test_run_one__makes_any_other_failure_a_broken_guard(context: Context) -> None:
    def fails(_: Context) -> list[Check]:
        raise KeyError("text")

    guard = Guard("odd", "api", "", EVERY, fails)
    (check,) = runner.run_one(guard, context)
    assert (check.kind, check.detail) == ("broken", "KeyError: 'text'")


@pytest.mark.parametrize("name", FIRST_SET[1:])
def test_api_guard__says_slow_when_a_rank_hangs(run: Run, server: FakeServer, name: str) -> None:
    server.faults.hang_s = 0.6
    assert set(kinds(run(name, timeout=0.2)).values()) == {"slow"}


def test_health__fails_for_another_model(run: Run, server: FakeServer) -> None:
    server.faults.max_model_len = 4096
    assert kinds(run("health"))["health.model"] == "wrong"


def test_first_token__fails_for_an_empty_stream(run: Run, server: FakeServer) -> None:
    server.faults.empty = True
    assert kinds(run("first_token")) == {"first_token": "wrong"}


def test_first_token__fails_when_the_token_comes_late(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinspark.guards.checks.first_token.LIMIT_S", 0.05)
    server.faults.hang_s = 0.2
    assert kinds(run("first_token")) == {"first_token": "slow"}


def test_first_token__forgives_one_late_request_after_a_start(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinspark.guards.checks.first_token.LIMIT_S", 0.3)
    server.faults.hang_first_s = 0.5
    (check,) = run("first_token")
    assert check.kind == "pass"
    assert "compiling" in check.detail


def test_determinism__fails_for_noise(run: Run, server: FakeServer) -> None:
    server.faults.jitter = 1e-6
    assert set(kinds(run("determinism")).values()) == {"wrong"}


def test_determinism__allows_a_real_model_its_noise_on_long_prompts(
    run: Run, server: FakeServer
) -> None:
    server.faults.jitter = 0.01
    found = kinds(run("determinism", exam=ContentExam(), oracle=None))
    assert found == {"determinism.short": "wrong", "determinism.long": "pass"}
    server.faults.jitter = 5.0
    found = kinds(run("determinism", exam=ContentExam(), oracle=None))
    assert found["determinism.long"] == "wrong"


def test_recall__fails_for_lost_facts(run: Run, server: FakeServer) -> None:
    server.faults.lose = 1.0
    found = kinds(run("recall"))
    assert (found["recall.cold"], found["recall.cached"]) == ("wrong", "wrong")


def test_recall__tells_cached_damage_from_cold(run: Run, server: FakeServer) -> None:
    server.faults.lose_cached = True
    found = kinds(run("recall"))
    assert (found["recall.cold"], found["recall.cached"]) == ("pass", "wrong")


def test_recall__fails_when_the_cache_is_not_read(run: Run, server: FakeServer) -> None:
    server.faults.cache_reads = False
    assert kinds(run("recall"))["recall.cache_read"] == "wrong"


def test_recall__says_when_the_cache_cannot_be_seen(run: Run, server: FakeServer) -> None:
    server.faults.cache_details = False
    assert kinds(run("recall"))["recall.cache_read"] == "skipped"


def test_recall__tells_truncated_from_wrong(run: Run, server: FakeServer) -> None:
    server.faults.cut = True
    found = kinds(run("recall", exam=ContentExam(), oracle=None))
    assert (found["recall.cold"], found["recall.cached"]) == ("truncated", "truncated")
    server.faults.cut, server.faults.lose = False, 1.0
    assert kinds(run("recall", exam=ContentExam(), oracle=None))["recall.cold"] == "wrong"


@pytest.mark.parametrize(
    ("text", "finish", "outcome"),
    [
        (" v1 v2 v3 .", "stop", "pass"),
        (" v1 v2", "length", "truncated"),
        (" v1 v2", "stop", "wrong"),  # it ended by itself, and too early
        (" v1 v9", "length", "wrong"),
        (" v1 v2 v33", "length", "wrong"),
    ],
)
def test_recall_exam__tells_truncated_from_wrong(text: str, finish: str, outcome: str) -> None:
    answer = Completion(text, (), (-1e-4,), (7.7,), finish, 1, None, 3, 0.1)
    question = Question([1], "v1 v2 v3", 4, 0)
    assert RecallExam(recall.Oracle()).mark(question, answer).outcome == outcome


@pytest.mark.parametrize("nats", [2e-4, 0.74])
def test_margin__fails_for_an_answer_that_is_right_but_soft(
    run: Run, server: FakeServer, nats: float
) -> None:
    server.faults.soften = nats
    assert kinds(run("margin")) == {"margin": "wrong"}


def test_margin__fails_for_a_soft_answer_of_a_real_model(run: Run, server: FakeServer) -> None:
    server.faults.soften = 0.74
    assert kinds(run("margin", exam=ContentExam(), oracle=None)) == {"margin": "wrong"}


@pytest.mark.parametrize(
    "exam", [RecallExam(recall.Oracle()), ContentExam()], ids=["exact", "real"]
)
def test_short_question__has_at_most_forty_tokens(exam: Exam) -> None:
    for seed in range(30):
        prompt = exam.short(seed).prompt
        tokens = len(prompt) if isinstance(prompt, list) else len(prompt) / CHARACTERS_A_TOKEN
        assert tokens <= 40


def test_content_exam__is_fitted_to_the_served_tokenizer(
    context: Context, server: FakeServer
) -> None:
    given = replace(context, plan=Plan(9, 10**6, 9))
    with given.client() as client:
        fitted = ContentExam().fitted(client)
        paper = fitted.needles(1000, 3, 5)
        counted = len(client.tokenize(str(paper.document)))
        assert abs(counted - 1000) < 60
        assert abs(paper.tokens - counted) < 60
        server.faults.status = 404
        assert ContentExam().fitted(client).characters_a_token == CHARACTERS_A_TOKEN
