"""trigger: the pattern that showed finding 13 in use: three long thinking requests and one short.

All four run together at temperature 0; each answer is judged, and each text goes through the
detectors. The same three without the short one stayed clean on the first seed's server.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from twinspark.guards.asking import score
from twinspark.guards.checks.text import judge
from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.detectors import LATIN
from twinspark.guards.exam import RecallExam

if TYPE_CHECKING:
    from twinspark.guards.asking import Asked
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context
    from twinspark.guards.exam import Question
    from twinspark.guards.model import Check

LONG: Final = 3
LONG_TOKENS: Final = 44_000
QUICK_TOKENS: Final = 4_000
THINKING_TOKENS: Final = 2_048
VALUES: Final = 60
ROUNDS: Final = {"guard": 1, "quick": 1, "full": 2}


def length(context: Context) -> int:
    """Length of a long request, tokens."""
    wanted = LONG_TOKENS if context.battery == "full" else QUICK_TOKENS
    room = context.context_tokens - (0 if context.exam.exact else THINKING_TOKENS)
    return max(min(wanted, room), 256)


def run(context: Context) -> list[Check]:
    """Rounds of four concurrent requests."""
    asked: list[Asked] = []
    with context.client() as client:
        for index in range(ROUNDS[context.battery]):
            questions = _questions(context, context.seed + 100 * (index + 1))
            with ThreadPoolExecutor(len(questions)) as pool:
                jobs = [
                    pool.submit(_one, context, client, question, position < LONG)
                    for position, question in enumerate(questions)
                ]
                asked += [job.result() for job in jobs]
    text = "\n".join(f"{answer.text}\n{answer.reasoning}" for _, _, answer in asked)
    return [
        score(context, "trigger.answers", asked),
        judge(context, "trigger.text", text, LATIN),
    ]


def _questions(context: Context, seed: int) -> list[Question]:
    exam = context.exam
    papers = [
        exam.copies(length(context), 1, seed + index, VALUES)
        if isinstance(exam, RecallExam)
        else exam.needles(length(context), 1, seed + index)
        for index in range(LONG)
    ]
    return [*(paper.questions[0] for paper in papers), exam.short(seed + LONG)]


def _one(context: Context, client: Client, question: Question, long: bool) -> Asked:
    salt = context.salt("trigger", question.expected[:8])
    if context.exam.exact or not long:
        stop = {"stop": list(question.stop)} if question.stop else {}
        answer = client.complete(question.prompt, question.max_tokens, salt, **stop)
    else:
        wish = "\n\nComplete the last line. Think it over, then answer with the number alone."
        message = [{"role": "user", "content": f"{question.prompt}{wish}"}]
        thinking = {"chat_template_kwargs": {"thinking": True}, "logprobs": False}
        answer = client.chat(message, THINKING_TOKENS, salt, **thinking)
    return question, context.exam.mark(question, answer), answer


def _plan(context: Context) -> Plan:
    rounds, size = ROUNDS[context.battery], length(context)
    tokens = rounds * (LONG * (size * 2 + 200) + 300)
    new = LONG * (VALUES + 2 if context.exam.exact else THINKING_TOKENS) + 8
    what = f"{rounds} x three requests of {size} tokens and a short one, together"
    seconds = max(context.timeout, LONG * size / 250)
    return Plan(rounds * (LONG + 1), tokens, rounds * new, seconds, what)


GUARD = Guard(
    "trigger", "api", "three long requests and a short one together", BATTERIES, run, _plan
)
