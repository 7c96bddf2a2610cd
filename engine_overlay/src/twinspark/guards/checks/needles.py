"""recall: facts hidden in a document come back, from fresh KV and from the prefix cache.

A new cache salt is cold KV, the same salt shared KV; so the guard works beside live traffic and
needs no cache reset.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from twinspark.guards.asking import Asked, ask, score
from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.exam import Paper

COLD: Final = 3  # questions asked of fresh KV; the others share one salt


def run(context: Context) -> list[Check]:
    """Ask a few needles cold, and all of them through one salt."""
    paper = context.exam.needles(context.document_tokens, context.depth.needles, context.seed + 2)
    with context.client() as client:
        cold = [
            ask(context, client, question, context.salt("cold", index))
            for index, question in enumerate(paper.questions[:COLD])
        ]
        salt = context.salt("warm")
        client.complete(paper.document, 1, salt)
        warm = [ask(context, client, question, salt) for question in paper.questions]
    return [
        score(context, "recall.cold", cold),
        score(context, "recall.cached", warm),
        _cache_read(context, paper, warm),
        *_equal(context, cold, warm),
    ]


def _cache_read(context: Context, paper: Paper, warm: list[Asked]) -> Check:
    """The cached arm must really have read the cache, or it has tested nothing."""
    counts = [answer.cached_tokens for _, _, answer in warm]
    known = [count for count in counts if count is not None]
    if not known:
        why = "the server does not report cached tokens: render enable-prompt-tokens-details"
        return Check("recall.cache_read", context.node, None, "", "", why, "skipped")
    # all but the last, partly filled block; text lengths are estimates
    wanted = (paper.tokens if context.exam.exact else paper.tokens // 2) - 2 * context.block_size
    least = min(known)
    return verdict(
        "recall.cache_read", context.node, least >= max(wanted, 1),
        f">= {max(wanted, 1)} tokens", f"{least} tokens", f"of a document of {paper.tokens}",
    )  # fmt: skip


def _equal(context: Context, cold: list[Asked], warm: list[Asked]) -> list[Check]:
    if not context.exam.exact:
        return []
    gaps = [
        abs(fresh.logprob - cached.logprob)
        for (_, fresh, _), (_, cached, _) in zip(cold, warm, strict=False)
    ]
    worst = max(gaps, default=math.nan)
    return [
        verdict(
            "recall.cold_is_warm", context.node, worst == 0.0, "same logprobs", f"{worst:.1e} apart"
        )
    ]


def _plan(context: Context) -> Plan:
    asked = COLD + context.depth.needles + 1
    tokens = asked * (context.document_tokens * 2 + 100)
    what = f"{asked} questions on one document of {context.document_tokens} tokens"
    return Plan(asked, tokens, asked * 8, context.timeout, what)


GUARD = Guard("recall", "api", "needles come back, cold and from the cache", EVERY, run, _plan)
