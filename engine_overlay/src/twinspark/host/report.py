"""Say verdicts to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinspark.host.check import BLOCKED, OK, PENDING, UNKNOWN, WARNING, WRONG
from twinspark.host.symptoms import SYMPTOMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinspark.host.check import Verdict

ORDER = (WRONG, WARNING, PENDING, BLOCKED, UNKNOWN, OK)


def explain(verdict: Verdict) -> str:
    """Return one failure in full: what was seen, its likely cause, what to do, the source."""
    known = None if verdict.unanswered else SYMPTOMS.get(verdict.row)
    lines = [
        f"{verdict.node}: {verdict.check}: expected {verdict.expected}; found {verdict.actual}"
    ]
    if verdict.detail:
        lines.append(f"  note:   {verdict.detail}")
    if known:
        lines.append(f"  cause:  {known.cause}")
        lines.append(f"  do:     {known.fix}")
        lines.append(f"  source: {known.source} (docs/symptoms.md S{verdict.row:02})")
    return "\n".join(lines)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the counts in one line."""
    counts = {state: sum(one.state == state for one in verdicts) for state in ORDER}
    return (
        ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        or "nothing was asked"
    )


def table(verdicts: Sequence[Verdict], *, everything: bool = False) -> str:
    """Return the report: what is wrong in full, what could not be judged, the counts."""
    parts = [explain(one) for one in verdicts if one.state in {WRONG, WARNING}]
    for one in verdicts:
        told = everything or one.unanswered
        if one.state in {BLOCKED, PENDING} or (one.state == UNKNOWN and told):
            parts.append(f"{one.node}: {one.check}: {one.state}: {one.detail or one.actual}")
        elif one.state == OK and everything:
            parts.append(f"{one.node}: {one.check}: ok: {one.actual}")
    return "\n".join([*parts, summary(verdicts)])
