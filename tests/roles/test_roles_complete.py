"""A role without its proofs is a failure, and so is a proof of a role that is gone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from roles.alternatives import PLAYED, roles_of, values
from roles.role_table import roles_of as roles_of_stage
from roles.role_table import stages
from roles.test_roles_idempotent import LEAVES_NOTHING, ROLES

HERE = Path(__file__).parent
# checked with the roles that a lab can play without an engine
MORE = {"host_roles"}


def subjects(name: str) -> set[str]:
    """What the tests of a file are about: `test_<subject>__<behaviour>`."""
    body = ast.parse((HERE / name).read_text(encoding="utf-8")).body
    names = [one.name for one in body if isinstance(one, ast.FunctionDef)]
    return {one[5:].partition("__")[0] for one in names if one.startswith("test_")}


@pytest.mark.parametrize("name", ["test_roles_converged.py", "test_roles_alternatives.py"])
def test_roles__each_has_a_test_of_its_state_and_of_another_value(name: str) -> None:
    assert subjects(name) - MORE == set(ROLES)


def test_roles__each_has_another_value_of_its_own(tmp_path: Path) -> None:
    given = values(tmp_path)
    assert roles_of(given) | set(PLAYED) == set(ROLES)


def test_roles__each_is_played_by_a_stage_and_so_seen_by_the_second_run() -> None:
    assert {role for stage in stages() for role in roles_of_stage(stage)} == set(ROLES)
    assert set(ROLES) > LEAVES_NOTHING
