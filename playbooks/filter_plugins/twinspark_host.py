"""Ansible's way to the host checks: one filter that judges what the nodes recorded."""

# ruff: noqa: INP001  Ansible loads filters by folder, not as a package

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError  # type: ignore[import-untyped]  # has no types

try:
    from twinspark.host.ansible import bandwidth, judged, rails_found, rails_restored
except ImportError as error:
    raise AnsibleFilterError(
        f"{error}: run `./run setup` and use .venv/bin/ansible-playbook"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def twinspark_judge(
    recordings: Mapping[str, str],
    only: Sequence[str] = (),
    must: Sequence[str] = (),
    pending: Sequence[str] = (),
) -> dict[str, Any]:
    """Judge recordings.

    Args:
        recordings: Node name -> what `record.py` printed there.
        only: Checks or groups of checks to ask.
        must: Checks that have to give an answer.
        pending: Checks whose failure is only a change that check mode did not make.

    Returns:
        `wrong`, `warnings` and, among these, `unanswered` (node name -> lines to print), `summary`,
        `table`, `verdicts`.

    Raises:
        AnsibleFilterError: A recording cannot be read, or a name is unknown.
    """
    try:
        return judged(recordings, tuple(only), tuple(must), tuple(pending))
    except (ValueError, json.JSONDecodeError) as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {
            "twinspark_judge": twinspark_judge,
            "twinspark_rails_found": rails_found,
            "twinspark_rails_restored": rails_restored,
            "twinspark_bandwidth": bandwidth,
        }
