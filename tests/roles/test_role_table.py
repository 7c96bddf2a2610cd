"""The README's role table is what the roles say today."""

from __future__ import annotations

from roles import role_table


def test_readme__has_the_roles_in_order() -> None:
    text = role_table.README.read_text(encoding="utf-8")
    assert f"{role_table.BEGIN}\n{role_table.table()}\n{role_table.END}" in text


def test_role_table__names_every_role() -> None:
    played = {role for stage in role_table.stages() for role in role_table.roles_of(stage)}
    assert played == {path.name for path in (role_table.ROOT / "roles").iterdir()}
