"""text: what the server writes when asked for different kinds of text, seen by the detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.detectors import LATIN, examine
from twinspark.guards.exam import RecallExam
from twinspark.guards.model import Check, shorten, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context

TOKENS: Final = 320
ASKED: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "prose": ("Describe a small harbour at dawn in two paragraphs of English prose.", LATIN),
    "code": ("Write a Python function that merges two sorted lists, with comments.", LATIN),
    "html": ("Write a short HTML page with a heading, a list and a table.", LATIN),
    "mathematics": ("Prove that the square root of 2 is irrational. Use LaTeX.", LATIN),
    "chinese": (
        "\u8bf7\u7528\u4e2d\u6587\u5199\u4e00\u6bb5\u5173\u4e8e\u79cb\u5929\u7684\u77ed\u6587\u3002",
        LATIN | {"CJK"},
    ),
    "russian": (
        "\u041e\u043f\u0438\u0448\u0438 \u0437\u0438\u043c\u043d\u0438\u0439 \u043b\u0435\u0441.",
        LATIN | {"CYRILLIC"},
    ),
}
NO_THINKING: Final = {"chat_template_kwargs": {"thinking": False}}


def run(context: Context) -> list[Check]:
    """One line a kind of text; an empty answer is a failure too."""
    with context.client() as client:
        if isinstance(context.exam, RecallExam):
            return [_copies(context, client, context.exam)]
        return [_ask(context, client, kind) for kind in ASKED]


def judge(context: Context, name: str, text: str, expected: frozenset[str]) -> Check:
    """The detectors' verdict on one text."""
    alarms = [f"{alarm.detector}: {alarm.evidence}" for alarm in examine(text, expected)]
    if not text.strip():
        alarms = ["empty"]
    actual = f"{len(alarms)} alarms in {len(text)} characters"
    data = {"alarms": alarms, "text": text[:2000] if alarms else ""}
    return verdict(
        name, context.node, not alarms, "no alarm", actual, shorten(alarms, 3), data=data
    )


def _ask(context: Context, client: Client, kind: str) -> Check:
    prompt, expected = ASKED[kind]
    message = [{"role": "user", "content": prompt}]
    answer = client.chat(message, TOKENS, context.salt("text", kind), **NO_THINKING)
    return judge(context, f"text.{kind}", answer.text, expected)


def _copies(context: Context, client: Client, exam: RecallExam) -> Check:
    paper = exam.copies(1024, 6, context.seed + 11, 60)
    salt = context.salt("text")
    texts = [client.complete(q.prompt, q.max_tokens, salt).text for q in paper.questions]
    return judge(context, "text.copies", "\n".join(texts), LATIN)


def _plan(context: Context) -> Plan:
    if context.exam.exact:
        return Plan(6, 6 * 1100, 6 * 62, context.timeout, "six copies of 60 tokens")
    what = f"{len(ASKED)} short texts: {', '.join(ASKED)}"
    return Plan(len(ASKED), 600, len(ASKED) * TOKENS, context.timeout, what)


GUARD = Guard(
    "text", "api", "no leaked markup, mixed languages, # bursts or loops", BATTERIES, run, _plan
)
