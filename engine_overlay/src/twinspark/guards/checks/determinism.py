"""determinism: the same question at temperature 0 gives the same answer.

Prompts up to 40 tokens, and any prompt to the recall model, must repeat bit for bit. Longer ones
on a real model may differ by the noise of batch-dependent kernels: measured, not assumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client, Prompt
    from twinspark.guards.context import Context
    from twinspark.guards.wire import Completion

TOKENS: Final = 8
# first-token logprob spread that batch-dependent reductions in bf16 can make; a soft answer of
# finding 13 moves by 0.7 and more
NOISE_LIMIT_NATS: Final = 0.1


def run(context: Context) -> list[Check]:
    """Repeat a short and a long prompt, each with cold and then cached KV."""
    with context.client() as client:
        short = context.exam.short(context.seed)
        long = context.exam.needles(context.document_tokens // 2, 2, context.seed + 1).questions[0]
        return [
            _exact(context, _repeat(context, client, short.prompt, "short")),
            _long(context, _repeat(context, client, long.prompt, "long")),
        ]


def _repeat(context: Context, client: Client, prompt: Prompt, name: str) -> list[Completion]:
    salt = context.salt("same", name)
    return [client.complete(prompt, TOKENS, salt) for _ in range(context.depth.repeats)]


def _exact(context: Context, answers: list[Completion], name: str = "short") -> Check:
    distinct = {(answer.tokens, answer.logprobs) for answer in answers}
    words = {answer.tokens for answer in answers}
    detail = "" if len(distinct) == 1 else f"{len(words)} different texts"
    return verdict(
        f"determinism.{name}", context.node, len(distinct) == 1,
        f"{len(answers)} runs bit-identical", f"{len(distinct)} distinct", detail,
    )  # fmt: skip


def _long(context: Context, answers: list[Completion]) -> Check:
    if context.exam.exact:
        return _exact(context, answers, "long")
    firsts = [answer.logprobs[0] for answer in answers if answer.logprobs]
    words = {answer.tokens[0] for answer in answers if answer.tokens}
    spread = max(firsts) - min(firsts) if firsts else float("nan")
    ok = len(words) == 1 and spread <= NOISE_LIMIT_NATS
    return verdict(
        "determinism.long", context.node, ok,
        f"one first token, spread <= {NOISE_LIMIT_NATS:g} nats",
        f"{len(words)} first tokens, spread {spread:.2g} nats", data={"spread_nats": spread},
    )  # fmt: skip


def _plan(context: Context) -> Plan:
    runs, half = context.depth.repeats, context.document_tokens // 2
    prompt = runs * (200 + half * 2)  # text runs up to twice its estimate
    return Plan(2 * runs, prompt, 2 * runs * TOKENS, context.timeout, "two prompts, repeated")


GUARD = Guard("determinism", "api", "temperature 0 repeats itself", EVERY, run, _plan)
