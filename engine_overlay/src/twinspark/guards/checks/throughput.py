"""throughput: a floor, so that a hang or a fall-back kernel shows; not a benchmark.

The floor is half of the median of earlier runs on this node with the same versions; before there
are three, a figure that any working server reaches.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Client, Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.load import wait_idle
from twinspark.guards.model import Check, no_verdict, verdict
from twinspark.guards.state import history

if TYPE_CHECKING:
    from twinspark.guards.context import Context

STREAMS: Final = (1, 4)
TOKENS: Final = 64
TRIES: Final = 5
SHARE: Final = 0.5
# tokens/s: far below every figure seen (lab, emulated: 42 and 228 decode, 1,440 prefill; Sparks,
# field: 20 and more decode, 1,000 and more prefill), far above a hang or a torch fall-back
FLOORS: Final = {"prefill": 100.0, "decode.1": 4.0, "decode.4": 8.0}


def run(context: Context) -> list[Check]:
    """Prefill one cold document, then decode with one stream and with four."""
    with context.client() as client:
        load = wait_idle(client, TRIES)
        if load:
            why = f"the server is not idle ({load} requests)"
            return [no_verdict("throughput", context.node, "skipped", why)]
        figures = {"prefill": _prefill(context, client)}
        for streams in STREAMS:
            figures[f"decode.{streams}"] = _decode(context, client, streams)
    return [_judge(context, name, figure) for name, figure in figures.items()]


def _prefill(context: Context, client: Client) -> float:
    paper = context.exam.needles(context.document_tokens, 1, context.seed + 13)
    answer = client.complete(paper.document, 1, context.salt("prefill-rate"))
    return answer.prompt_tokens / answer.seconds


def _decode(context: Context, client: Client, streams: int) -> float:
    def one(index: int) -> int:
        prompt = context.exam.short(context.seed + 20 + index).prompt
        salt = context.salt("decode-rate", streams, index)
        return client.complete(prompt, TOKENS, salt, ignore_eos=True).completion_tokens

    started = time.monotonic()
    with ThreadPoolExecutor(streams) as pool:
        tokens = sum(pool.map(one, range(streams)))
    return tokens / (time.monotonic() - started)


def _judge(context: Context, name: str, figure: float) -> Check:
    earlier = history(context.state, context.system.fingerprint(), name) if context.state else []
    floor = SHARE * median(earlier[-20:]) if len(earlier) >= 3 else FLOORS[name]
    source = f"half the median of {len(earlier)} runs" if len(earlier) >= 3 else "a fixed floor"
    return verdict(
        f"throughput.{name}", context.node, figure >= floor, f">= {floor:.0f} tokens/s",
        f"{figure:.0f} tokens/s", source, failure="slow", data={"tokens_per_s": figure},
    )  # fmt: skip


def _plan(context: Context) -> Plan:
    streams = sum(STREAMS)
    tokens = context.document_tokens * 2 + 200 + streams * 200
    what = f"a cold document, then {TOKENS} tokens on {STREAMS[0]} and {STREAMS[1]} streams"
    return Plan(1 + streams + TRIES, tokens, streams * TOKENS + 1, context.timeout, what)


GUARD = Guard("throughput", "api", "a floor for prefill and decode", BATTERIES, run, _plan)
