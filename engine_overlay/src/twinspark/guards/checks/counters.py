"""counters: requests that the engine itself has marked as corrupted (a row of logits with NaN)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, no_verdict, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context

CORRUPTED: Final = "vllm:corrupted_requests_total"
PREEMPTED: Final = "vllm:num_preemptions_total"


def run(context: Context) -> list[Check]:
    """Zero corrupted requests since the start; preemptions are worth a word."""
    with context.client() as client:
        metrics = client.metrics()
    checks = []
    if CORRUPTED in metrics:
        count = metrics[CORRUPTED]
        detail = "NaN in logits; its draft gather can go out of range (13b)" if count else ""
        check = verdict("counters.corrupted", context.node, not count, "0", f"{count:.0f}", detail)
        checks.append(check)
    else:
        why = "not counted: needs VLLM_COMPUTE_NANS_IN_LOGITS=1"
        checks.append(no_verdict("counters.corrupted", context.node, "skipped", why))
    if metrics.get(PREEMPTED, 0):
        why = f"{metrics[PREEMPTED]:.0f} preemptions since the start: the KV pool runs full"
        checks.append(no_verdict("counters.preemptions", context.node, "note", why))
    return checks


GUARD = Guard(
    "counters", "api", "no request marked as corrupted", EVERY, run,
    lambda context: Plan(1, 0, 0, context.timeout, "GET /metrics"),
)  # fmt: skip
