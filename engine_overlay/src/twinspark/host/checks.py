"""All checks in the order in which they are asked, and the one way to ask them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinspark.host import checks_driver, checks_fabric, checks_host, checks_traffic
from twinspark.host.check import Check, Verdict, judge
from twinspark.host.expect import Expect
from twinspark.host.node import Node

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

CHECKS: tuple[Check, ...] = (
    *checks_driver.CHECKS,
    *checks_fabric.CHECKS,
    *checks_traffic.CHECKS,
    *checks_host.CHECKS,
)


def judge_recordings(
    recordings: Mapping[str, Mapping[str, Any]],
    expectations: Mapping[str, Mapping[str, Any]],
    only: Collection[str] = (),
    pending: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Judge what nodes recorded.

    Args:
        recordings: Node name -> recording.
        expectations: Node name -> `Expect` as JSON.
        only: Groups or ids of the checks to ask; all when empty.
        pending: Ids whose failure is only a change that check mode did not make.

    Raises:
        RecordingError: A recording is none.
        ValueError: `only` names nothing, or an expectation is unknown.
    """
    known = {one.id for one in CHECKS} | {one.group for one in CHECKS}
    if unknown := sorted(set(only) - known):
        raise ValueError(f"no check or group is called {', '.join(unknown)}")
    nodes = [
        Node.from_json(name, value, Expect.from_json(dict(expectations.get(name, {}))))
        for name, value in recordings.items()
    ]
    wanted = [one for one in CHECKS if not only or {one.id, one.group} & set(only)]
    return judge(wanted, nodes, pending)
