"""Run guards one after the other; what goes wrong becomes a line of the report."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from twinspark.guards.checks.identity import equal_facts, node_facts
from twinspark.guards.client import GuardError, Plan
from twinspark.guards.model import Check, NodeReport, no_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinspark.guards.context import Context, Guard

Where = Literal["all", "local", "api"]


def wanted_here(guard: Guard, context: Context, where: Where) -> bool:
    """Whether a guard runs on this node: the API's on the head only."""
    if where not in {"all", guard.scope}:
        return False
    return guard.scope == "local" or context.settings.rank == 0


def plans(guards: Iterable[Guard], context: Context) -> list[tuple[str, Plan, str]]:
    """Name, plan and, where a guard does not apply, why."""
    return [(guard.name, guard.plan(context), guard.applies(context)) for guard in guards]


def run_one(guard: Guard, context: Context) -> list[Check]:
    """One guard's checks, with its wall time."""
    why = guard.applies(context)
    if why:
        return [no_verdict(guard.name, context.node, "skipped", why)]
    started = time.monotonic()
    try:
        checks = guard.run(replace(context, plan=guard.plan(context)))
    except GuardError as error:
        failed = None if error.kind == "broken" else False
        checks = [
            Check(guard.name, context.node, failed, "an answer", error.kind, str(error), error.kind)
        ]
    except Exception as error:  # noqa: BLE001 - whatever it is, the other guards' results stay
        # no verdict on the server: the guard could not do its work here
        checks = [
            no_verdict(guard.name, context.node, "broken", f"{type(error).__name__}: {error}")
        ]
    seconds = round(time.monotonic() - started, 3)
    return [replace(check, seconds=seconds) for check in checks] or [
        no_verdict(guard.name, context.node, "broken", "the guard made no check")
    ]


def answers(context: Context) -> bool:
    """Whether `/health` answers now; a node without an API has none to wait for."""
    if context.settings.rank:
        return True
    try:
        with replace(context, plan=Plan(1, seconds=10.0)).client() as client:
            client.get("/health")
    except GuardError:
        return False
    return True


def run_all(
    guards: Iterable[Guard], context: Context, done: Callable[[list[Check]], None] = lambda _: None
) -> list[Check]:
    """Run guards in order.

    Args:
        guards: Which.
        context: Where.
        done: Called after each guard with its checks.
    """
    checks: list[Check] = []
    for guard in guards:
        found = run_one(guard, context)
        done(found)
        checks += found
    return checks


def node_report(context: Context, label: str, checks: list[Check]) -> NodeReport:
    """This node's report."""
    return NodeReport(
        node=context.node,
        rank=context.settings.rank,
        time=time.time(),
        label=label,
        battery=context.battery,
        seed=context.seed,
        fingerprint=context.system.fingerprint(),
        equal=equal_facts(context.system, context.settings),
        per_node=node_facts(context.settings),
        checks=checks,
    )
