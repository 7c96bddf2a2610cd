"""first_token: a real completion comes, soon; `/health` alone stays 200 with a dead peer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context

TOKENS: Final = 4
# TTFT of a 40-token prompt on an otherwise idle server. Field reports for two Sparks give 0.3 to
# 2 s; the lab's two cores 0.1 to 0.2 s. Ten seconds is not tuning: it is "something hangs".
LIMIT_S: Final = 10.0


def run(context: Context) -> list[Check]:
    """Stream a few tokens and take the time of the first."""
    question = context.exam.short(context.seed)
    with context.client() as client:
        chunks = [
            (seconds, text)
            for seconds, text in client.stream(question.prompt, TOKENS, context.salt("first"))
            if text
        ]
    if not chunks:
        detail = "the stream ended without text"
        return [verdict("first_token", context.node, False, "a token", "none", detail)]
    first, total = chunks[0][0], chunks[-1][0]
    data = {"ttft_s": round(first, 4), "seconds": round(total, 4), "chunks": len(chunks)}
    detail = f"{len(chunks)} chunks in {total:.2f} s"
    return [
        verdict(
            "first_token", context.node, first <= LIMIT_S, f"within {LIMIT_S:g} s",
            f"{first:.2f} s", detail, failure="slow", data=data,
        )
    ]  # fmt: skip


GUARD = Guard(
    "first_token", "api", "a completion starts within 10 s", EVERY, run,
    lambda context: Plan(1, 200, TOKENS, context.timeout, "one streamed completion of 4 tokens"),
)  # fmt: skip
