"""acceptance: the canary of speculative decoding, by position, with an alarm on both sides.

Too low: the draft reads wrong rows or slots (first seed 0.41 at position 0 with the wrong slot,
0.74 with the right one). Too high: the text loops, and loops are easily drafted. The counters are
the server's, so nothing else may run meanwhile.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.detectors import repetition_loop
from twinspark.guards.exam import RecallExam
from twinspark.guards.load import foreign_load, wait_idle
from twinspark.guards.model import Check, no_verdict, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context

DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
ACCEPTED: Final = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="%d"}'
POSITIONS: Final = 16
LEAST_DRAFTS: Final = 100  # 0.74 +- 0.04 (one sigma)
# position 0 on prose. Source: second seed, the field's figures: 0.41 wrong slot, 0.74 right.
LOW, HIGH = 0.60, 0.95
EXACT_LOW: Final = 0.95  # copies of the recall model: emulated, ngram 320 of 320
TOKENS: Final = 160
TRIES: Final = 5
TOPICS: Final = (
    "The history of canal locks in three paragraphs:\n",
    "How bread rises, explained to a curious child:\n",
    "A short walk through a railway museum:\n",
    "Why the sea is salt, step by step:\n",
)


def run(context: Context) -> list[Check]:
    """Counters before and after texts of our own, on an idle server."""
    with context.client() as client:
        load = wait_idle(client, TRIES)
        if load:
            why = f"the server is not idle ({load} requests): its counters would be mixed"
            return [no_verdict("acceptance", context.node, "skipped", why)]
        before = client.metrics()
        texts = _generate(context, client)
        after = client.metrics()
        if foreign_load(client):
            why = "other requests came meanwhile: the counters are mixed"
            return [no_verdict("acceptance", context.node, "skipped", why)]
    drafts = after.get(DRAFTS, 0.0) - before.get(DRAFTS, 0.0)
    rates = [
        (after[name] - before.get(name, 0.0)) / max(drafts, 1.0)
        for name in (ACCEPTED % position for position in range(POSITIONS))
        if name in after
    ]
    return _judge(context, drafts, rates, texts)


def _generate(context: Context, client: Client) -> list[str]:
    salt = context.salt("acceptance")
    if isinstance(context.exam, RecallExam):
        paper = context.exam.copies(1024, 10, context.seed + 9, 40)
        asked = [(q.prompt, q.max_tokens) for q in paper.questions]
    else:
        asked = [(topic, TOKENS) for topic in TOPICS]
    return [client.complete(prompt, tokens, salt).text for prompt, tokens in asked]


def _judge(context: Context, drafts: float, rates: list[float], texts: list[str]) -> list[Check]:
    name, node = "acceptance", context.node
    if not rates or not 0 < drafts < math.inf:
        detail = "speculative decoding is configured and drafts nothing"
        return [verdict(name, node, False, "drafts", "none", detail, failure="missing")]
    low, high = (EXACT_LOW, 1.0) if context.exam.exact else (LOW, HIGH)
    wrong = _complaints(rates, low, high)
    if not context.exam.exact:
        loops = [found for text in texts if (found := repetition_loop(text, frozenset()))]
        wrong += [f"the text loops: {loops[0]}"] if loops else []
        wrong += [f"only {drafts:.0f} drafts"] if drafts < LEAST_DRAFTS else []
    shown = ", ".join(f"{rate:.2f}" for rate in rates)
    return [
        verdict(
            name, node, not wrong, f"position 0 within {low:.2f} to {high:.2f}, falling",
            f"{shown} over {drafts:.0f} drafts", "; ".join(wrong),
            data={"drafts": drafts, "rates": rates},
        )
    ]  # fmt: skip


def _complaints(rates: list[float], low: float, high: float) -> list[str]:
    found = []
    if not rates[0] >= low:  # written so that NaN is too low
        found.append("too low: wrong draft rows or slot; rule finding 13 out first")
    if rates[0] > high:
        found.append("too high: loops are easily drafted, read the text")
    # a draft is accepted up to its first miss, so the unconditional rates cannot rise
    if any(after > before + 1e-9 for before, after in pairwise(rates)):
        found.append("a later position is accepted more often than an earlier one")
    return found


def _plan(context: Context) -> Plan:
    if context.exam.exact:
        requests, tokens, new = 10, 10 * 1100, 10 * 42
    else:
        requests, tokens, new = len(TOPICS), 200, len(TOPICS) * TOKENS
    what = "counters before and after texts of our own"
    return Plan(requests + TRIES + 3, tokens, new, context.timeout, what)


def _applies(context: Context) -> str:
    return "" if context.settings.speculates else "this variant does not speculate"


GUARD = Guard(
    "acceptance", "api", "draft acceptance by position, neither low nor high", BATTERIES,
    run, _plan, _applies,
)  # fmt: skip
