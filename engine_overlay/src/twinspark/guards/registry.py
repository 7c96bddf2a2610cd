"""All guards, in the order in which they run: cheap first, each resting on those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinspark.guards.checks import (
    acceptance,
    blocks,
    config_match,
    counters,
    determinism,
    first_token,
    health,
    identity,
    ladder,
    logs,
    margin,
    needles,
    neighbours,
    overlay_applied,
    puzzle,
    structured,
    text,
    throughput,
    trigger,
)

if TYPE_CHECKING:
    from twinspark.guards.context import Battery, Guard

GUARDS: Final[tuple[Guard, ...]] = (
    identity.GUARD,
    config_match.GUARD,
    overlay_applied.GUARD,
    health.GUARD,
    first_token.GUARD,
    determinism.GUARD,
    needles.GUARD,
    margin.GUARD,
    neighbours.GUARD,
    blocks.GUARD,
    ladder.GUARD,
    acceptance.GUARD,
    trigger.GUARD,
    text.GUARD,
    structured.GUARD,
    puzzle.GUARD,
    throughput.GUARD,
    # last, so that they see what the others set off
    counters.GUARD,
    logs.GUARD,
)


def chosen(battery: Battery, only: list[str], skip: list[str]) -> list[Guard]:
    """The guards of a battery, or exactly those named.

    Raises:
        ValueError: A name is unknown.
    """
    known = {guard.name for guard in GUARDS}
    unknown = sorted({*only, *skip} - known)
    if unknown:
        raise ValueError(f"no guard {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    wanted = set(only) or {guard.name for guard in GUARDS if battery in guard.batteries}
    return [guard for guard in GUARDS if guard.name in wanted and guard.name not in skip]
