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


TRIES: Final = 2  # the first request after a start may compile kernels: 46 s seen (emulated, H200)


def run(context: Context) -> list[Check]:
    """Stream a few tokens and take the time of the first; once more when it came late."""
    question = context.exam.short(context.seed)
    with context.client() as client:
        for attempt in range(TRIES):
            salt = context.salt("first", attempt)
            started = [
                (seconds, text)
                for seconds, text in client.stream(question.prompt, TOKENS, salt)
                if text
            ]
            if not started:
                detail = "the stream ended without text"
                return [verdict("first_token", context.node, False, "a token", "none", detail)]
            if attempt == 0:
                earliest = started[0][0]
            if started[0][0] <= LIMIT_S:
                break
    first, total = started[0][0], started[-1][0]
    data = {"ttft_s": round(first, 4), "seconds": round(total, 4), "chunks": len(started)}
    detail = f"{len(started)} chunks in {total:.2f} s"
    if attempt:
        detail += f"; the request before took {earliest:.1f} s (compiling after a start?)"
    return [
        verdict(
            "first_token", context.node, first <= LIMIT_S, f"within {LIMIT_S:g} s",
            f"{first:.2f} s", detail, failure="slow", data=data,
        )
    ]  # fmt: skip


GUARD = Guard(
    "first_token", "api", "a completion starts within 10 s", EVERY, run,
    lambda context: Plan(
        TRIES, 200, TRIES * TOKENS, context.timeout, "a streamed completion of 4 tokens"
    ),
)  # fmt: skip
