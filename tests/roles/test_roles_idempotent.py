"""Every role on the converged pair and on a bare one: a second run, and check mode on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.play import ROOT
from roles.narrated import read

if TYPE_CHECKING:
    from lab.play import Played
    from roles.narrated import Narrated

pytestmark = pytest.mark.lab

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
# Roles that leave nothing of their own on a node that has none of it yet: a fact, or a judgement.
LEAVES_NOTHING = {"variant", "smoke_guard", "battery_timer"}


@pytest.mark.parametrize("role", ROLES)
def test_role__a_second_run_changes_nothing(role: str, settled: Narrated) -> None:
    assert settled.plays(role), f"no stage of site.yml plays {role}"
    assert settled.changed(role) == []


@pytest.mark.parametrize("role", ROLES)
def test_role__check_mode_on_the_converged_pair_would_change_nothing(
    role: str, converged_check: Played
) -> None:
    said = read(converged_check.text)
    assert converged_check.status == 0, converged_check.text[-4000:]
    assert said.plays(role)
    assert {task: said.task(role, task).text for task in said.changed(role)} == {}


@pytest.mark.parametrize("role", ROLES)
def test_role__check_mode_on_a_bare_pair_says_what_it_would_do(
    role: str, bare_check: Played
) -> None:
    said = read(bare_check.text)
    assert bare_check.status == 0, bare_check.text[-4000:]
    assert said.plays(role)
    for task in said.of(role):
        assert {state for _, state in task.results} <= {"ok", "changed", "skipping"}, task
    assert bool(said.changed(role)) is (role not in LEAVES_NOTHING)
