"""Asking the questions of a paper and scoring the answers, as most guards do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from twinspark.guards.model import Check, shorten, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinspark.guards.client import Client
    from twinspark.guards.context import Context
    from twinspark.guards.exam import Mark, Question
    from twinspark.guards.model import Kind
    from twinspark.guards.wire import Completion

Asked = tuple["Question", "Mark", "Completion"]
BATCH: Final = 16  # questions a request when many are asked of one document


def ask(context: Context, client: Client, question: Question, salt: str) -> Asked:
    """One question and its mark."""
    stop = {"stop": list(question.stop)} if question.stop else {}
    answer = client.complete(question.prompt, question.max_tokens, salt, **stop)
    return question, context.exam.mark(question, answer), answer


def score(context: Context, name: str, asked: Sequence[Asked]) -> Check:
    """All answers right and sharp; cut answers are told apart from wrong ones."""
    bad = [
        f"{q.expected}: {m.outcome} {m.got!r} lp {m.logprob:.2g} at token {q.position}"
        for q, m, _ in asked
        if not m.ok
    ]
    outcomes = {mark.outcome for _, mark, _ in asked if not mark.ok}
    failure: Kind = "truncated" if outcomes == {"truncated"} else "wrong"
    worst = min((mark.logprob for _, mark, _ in asked), default=math.nan)
    return verdict(
        name, context.node, not bad, f"{len(asked)} right",
        f"{len(asked) - len(bad)} right, worst lp {worst:.2e}", shorten(bad, 3), failure=failure,
        data={"worst_logprob": worst, "bad": len(bad), "asked": len(asked)},
    )  # fmt: skip


def ask_many(
    context: Context, client: Client, questions: Sequence[Question], salt: str
) -> list[Asked]:
    """Many questions through one salt, in batches."""
    asked: list[Asked] = []
    for start in range(0, len(questions), BATCH):
        part = questions[start : start + BATCH]
        stop = {"stop": list(part[0].stop)} if part[0].stop else {}
        prompts = [question.prompt for question in part]
        answers = client.complete_many(prompts, part[0].max_tokens, salt, **stop)
        marks = (context.exam.mark(q, a) for q, a in zip(part, answers, strict=True))
        asked += zip(part, marks, answers, strict=True)
    return asked
