"""The guard stage: what each node can check."""

from __future__ import annotations

from host.render import ROOT
from roles.role_table import load
from twinspark.guards.registry import GUARDS


def test_smoke_guard__knows_which_guards_a_worker_can_run():
    listed = load(ROOT / "roles/smoke_guard/vars/main.yml")["__smoke_guard_local"]
    assert set(listed) == {guard.name for guard in GUARDS if guard.scope == "local"}
