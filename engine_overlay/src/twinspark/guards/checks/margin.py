"""margin: the right answer is right by as much as it should be.

Damaged KV softens an answer before it changes it: V scaled by 0.98 moves no answer of the recall
model, and shows here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from twinspark.guards.asking import ask
from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.exam import SHARP_LOGPROB, SHARP_MARGIN_NATS
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context

QUESTIONS: Final = 4


def run(context: Context) -> list[Check]:
    """Ask a few needles and compare margin and logprob with what is known."""
    paper = context.exam.needles(context.document_tokens, QUESTIONS, context.seed + 3)
    salt = context.salt("margin")
    with context.client() as client:
        marks = [mark for _, mark, _ in (ask(context, client, q, salt) for q in paper.questions)]
    margins = [mark.margin for mark in marks]
    logprobs = [mark.logprob for mark in marks]
    data = {"margins": margins, "logprobs": logprobs}
    if context.oracle:
        known, allowed = context.oracle.margin_nats, context.oracle.margin_tolerance_nats
        far = max((abs(margin - known) for margin in margins), default=math.nan)
        ok = far <= allowed and min(logprobs) >= context.oracle.logprob_floor
        expected = f"{known:.2f} +- {allowed:g} nats, lp >= {context.oracle.logprob_floor:g}"
    else:
        ok = all(m >= SHARP_MARGIN_NATS for m in margins) and min(logprobs) >= SHARP_LOGPROB
        expected = f">= {SHARP_MARGIN_NATS:g} nats, lp >= {SHARP_LOGPROB:g}"
    actual = f"{min(margins):.2f} to {max(margins):.2f} nats, lp {min(logprobs):.2e}"
    return [verdict("margin", context.node, ok, expected, actual, data=data)]


def _plan(context: Context) -> Plan:
    tokens = QUESTIONS * (context.document_tokens * 2 + 100)
    what = f"{QUESTIONS} questions on one document of {context.document_tokens} tokens"
    return Plan(QUESTIONS, tokens, QUESTIONS * 8, context.timeout, what)


GUARD = Guard("margin", "api", "answers are as sharp as they should be", EVERY, run, _plan)
