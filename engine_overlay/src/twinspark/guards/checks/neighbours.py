"""neighbours: Guard 5, the margin of one question alone and beside other requests.

The same cached question three ways: alone, beside a request that decodes, beside one that prefills.
Finding 13 makes a pure decode batch read rows at the wrong stride: alone after hours of traffic,
and from the first request for the draft's rows; a prefilling neighbour takes another path and is
clean. So two arms are not enough, and a fresh server must be asked again when it is hours warm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from twinspark.guards.asking import Asked, ask
from twinspark.guards.checks.determinism import NOISE_LIMIT_NATS
from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.load import decoding, prefilling, wait_idle
from twinspark.guards.model import Check, no_verdict, shorten, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context
    from twinspark.guards.exam import Question

DECODE_TOKENS: Final = 512
TRIES: Final = 5  # idle probes
Arm = list[Asked]


def run(context: Context) -> list[Check]:
    """Three arms on the same cached KV."""
    paper = context.exam.needles(context.document_tokens, 1, context.seed + 5)
    question, salt = paper.questions[0], context.salt("neighbours")
    with context.client() as client:
        client.complete(paper.document, 1, salt)
        load = wait_idle(client, TRIES)
        arms: dict[str, Arm] = {}
        if load == 0:
            arms["alone"] = [
                ask(context, client, question, salt) for _ in range(context.depth.repeats)
            ]
        arms["decoding"] = _beside_decode(context, client, question, salt)
        arms["prefilling"] = _beside_prefill(context, client, question, salt)
    checks = [_arm(context, name, arm) for name, arm in arms.items()]
    if load:
        why = f"the server is not idle ({load} requests): alone cannot be measured now"
        checks.insert(0, no_verdict("neighbours.alone", context.node, "skipped", why))
    return [*checks, _spread(context, arms)]


def _beside_decode(context: Context, client: Client, question: Question, salt: str) -> Arm:
    """Only questions whose neighbour was still decoding at the end count."""
    arm: Arm = []
    other = context.exam.short(context.seed + 6).prompt
    for index in range(context.depth.repeats):
        with decoding(client, other, DECODE_TOKENS, context.salt("decode", index)) as neighbour:
            asked = ask(context, client, question, salt)
            if neighbour.alive:
                arm.append(asked)
    return arm


def _pair_tokens(context: Context) -> tuple[int, int]:
    """Lengths of the doorkeeper and the companion: see `prefilling`."""
    budget, limit = context.settings.max_num_batched_tokens, context.context_tokens
    return min(budget * 3 // 2, limit), min(budget * 2, limit)


def _beside_prefill(context: Context, client: Client, question: Question, salt: str) -> Arm:
    """Only questions that were answered while a neighbour still prefilled count."""
    arm: Arm = []
    first, second = _pair_tokens(context)
    for index in range(context.depth.repeats):
        seed = context.seed + 70 + 2 * index
        doorkeeper = context.exam.needles(first, 1, seed).document
        companion = context.exam.needles(second, 1, seed + 1).document
        name = context.salt("prefill", index)
        with prefilling(client, doorkeeper, companion, name) as pair:
            asked = ask(context, client, question, salt)
            if any(neighbour.alive for neighbour in pair):
                arm.append(asked)
    return arm


def _arm(context: Context, name: str, arm: Arm) -> Check:
    if not arm:
        why = "the neighbour had ended before the answer came: nothing was measured"
        return no_verdict(f"neighbours.{name}", context.node, "broken", why)
    bad = [
        f"{mark.outcome} {mark.got!r} lp {mark.logprob:.2g}" for _, mark, _ in arm if not mark.ok
    ]
    logprobs = [mark.logprob for _, mark, _ in arm]
    return verdict(
        f"neighbours.{name}", context.node, not bad, f"{len(arm)} sharp",
        f"{len(arm) - len(bad)} sharp, lp {min(logprobs):.2e}", shorten(bad, 3),
        data={"logprobs": logprobs, "margins": [mark.margin for _, mark, _ in arm]},
    )  # fmt: skip


def _spread(context: Context, arms: dict[str, Arm]) -> Check:
    """The arms agree: a constant softness is margin's business, a difference is this guard's."""
    means = {
        name: math.fsum(mark.logprob for _, mark, _ in arm) / len(arm)
        for name, arm in arms.items()
        if arm
    }
    spread = max(means.values()) - min(means.values()) if len(means) > 1 else math.nan
    limit = 1e-4 if context.exam.exact else NOISE_LIMIT_NATS
    hours = context.system.uptime_hours(context.settings.unit)
    age = f"server up {hours:.1f} h" if hours is not None else "age of the server unknown"
    data: dict[str, Any] = {"means": means, "uptime_h": hours}
    return verdict(
        "neighbours.agree", context.node, spread <= limit, f"arms within {limit:g} nats",
        f"{spread:.1e} nats apart", age, data=data,
    )  # fmt: skip


def _plan(context: Context) -> Plan:
    runs = context.depth.repeats
    asked = 1 + 3 * runs
    tokens = asked * (context.document_tokens * 2 + 100)
    tokens += runs * (sum(_pair_tokens(context)) * 2 + 400)
    new = asked * 8 + runs * (DECODE_TOKENS + 2)
    what = f"one cached question {runs} times alone, beside a decode, beside a prefill"
    seconds = max(context.timeout, sum(_pair_tokens(context)) / 250)
    return Plan(asked + 3 * runs + TRIES, tokens, new, seconds, what)


GUARD = Guard(
    "neighbours",
    "api",
    "Guard 5: the margin is the same alone and in company",
    BATTERIES,
    run,
    _plan,
)
