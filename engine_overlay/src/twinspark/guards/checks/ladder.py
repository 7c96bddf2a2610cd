"""ladder: three needles at growing lengths, up to the context limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.asking import ask, ask_many, score
from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.model import Check

NEEDLES: Final = 3
TEXT_SHARE: Final = 0.97  # a text's length is known to a few per cent only


def rungs(context: Context) -> list[int]:
    """Lengths in tokens: those of the depth that fit; a full battery ends at the limit."""
    limit = context.context_tokens
    if not context.exam.exact:
        limit = round(limit * TEXT_SHARE)
    lengths = {rung for rung in context.depth.ladder if rung <= limit}
    if context.battery == "full":
        lengths.add(limit)
    return sorted(lengths)


def run(context: Context) -> list[Check]:
    """One check a rung; a rung that fails does not stop the climb."""
    checks = []
    with context.client() as client:
        exam = context.exam.fitted(client)
        for length in rungs(context):
            paper = exam.needles(length, NEEDLES, context.seed + length)
            salt = context.salt("ladder", length)
            # the first alone: three at once would each prefill the document
            first = ask(context, client, paper.questions[0], salt)
            asked = [first, *ask_many(context, client, paper.questions[1:], salt)]
            check = score(context, f"ladder.{length}", asked)
            if check.data is not None:
                check.data["tokens"] = paper.tokens
                check.data["marks"] = [mark.outcome for _, mark, _ in asked]
                check.data["logprobs"] = [mark.logprob for _, mark, _ in asked]
            checks.append(check)
    return checks


def _plan(context: Context) -> Plan:
    lengths = rungs(context)
    tokens = sum(NEEDLES * (length * 2 + 100) for length in lengths)
    seconds = max(context.timeout, max(lengths, default=0) / 250)
    what = f"{NEEDLES} needles at {', '.join(map(str, lengths))} tokens"
    return Plan(2 * len(lengths) + 1, tokens, len(lengths) * NEEDLES * 8, seconds, what)


GUARD = Guard("ladder", "api", "needles up to the context limit", BATTERIES, run, _plan)
