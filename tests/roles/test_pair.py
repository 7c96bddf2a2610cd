"""The converged pair: check mode, life and death. One boot and one converge serve all of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.engine import RIGHT, UNIT, answer, prop

if TYPE_CHECKING:
    from lab.nodes import Node
    from lab.play import Played

pytestmark = pytest.mark.lab

HEALS_WITHIN_S = 240


def heals(spark1: Node, spark2: Node, before: dict[str, str]) -> None:
    """Both engines are new ones and the head answers rightly."""
    last = ""
    end = time.monotonic() + HEALS_WITHIN_S
    while time.monotonic() < end:
        now = {node.name: prop(node, "MainPID") for node in (spark1, spark2)}
        fresh = all(pid not in {"0", before[name]} for name, pid in now.items())
        last = answer(spark1)
        if fresh and last == RIGHT:
            return
        time.sleep(2)
    pytest.fail(f"not healed after {HEALS_WITHIN_S} s: {before} -> {now}, last answer {last!r}")


@pytest.fixture
def engines(spark1: Node, spark2: Node) -> dict[str, str]:
    """Main pids of a pair that answers rightly."""
    assert answer(spark1) == RIGHT
    return {node.name: prop(node, "MainPID") for node in (spark1, spark2)}


def test_unit__is_enabled_and_runs_as_its_own_user(spark1: Node, spark2: Node) -> None:
    for node in (spark1, spark2):
        assert node.text("systemctl", "is-enabled", UNIT) == "enabled"
        assert prop(node, "ActiveState") == "active"
        assert prop(node, "User") == "twinspark"
        assert prop(node, "Restart") == "always"
        assert prop(node, "StartLimitBurst") == "10"


def test_site__in_check_mode_on_the_converged_pair_would_change_nothing(
    converged_check: Played,
) -> None:
    assert converged_check.status == 0, converged_check.text[-4000:]
    changed = {name: recap.changed for name, recap in converged_check.nodes.items()}
    assert changed == {"spark1": 0, "spark2": 0}


SHARD = "/srv/models/recall/model.safetensors"
# changes one byte of the weights, or, run again, gives it back
FLIP = f"""
with open("{SHARD}", "r+b") as shard:
    shard.seek(20_000_000)
    byte = shard.read(1)[0]
    shard.seek(20_000_000)
    shard.write(bytes([byte ^ 1]))
"""


def refusals(node: Node) -> int:
    """How often the unit's start was refused for its checkpoint."""
    said = node.text("journalctl", "--unit", UNIT, "--no-pager", "--output", "cat")
    return said.count("files changed since they were verified")


def test_pair__a_changed_byte_keeps_the_worker_down__and_a_verified_one_heals_the_pair(
    spark1: Node, spark2: Node, engines: dict[str, str]
) -> None:
    tool = "/opt/twinspark/bin/twinspark-checkpoint"
    before = refusals(spark2)
    spark2.run("python3", "-c", FLIP)
    spark2.run("systemctl", "kill", "--signal=KILL", UNIT)
    end = time.monotonic() + 60
    while refusals(spark2) == before and time.monotonic() < end:
        time.sleep(1)
    assert refusals(spark2) > before
    spark2.run("systemctl", "stop", UNIT)
    wrong = spark2.run(tool, "verify", SHARD.rsplit("/", 1)[0], check=False)
    assert wrong.returncode == 1
    assert "model.safetensors" in wrong.stdout + wrong.stderr
    spark2.run("python3", "-c", FLIP)
    spark2.run(tool, "verify", SHARD.rsplit("/", 1)[0])
    spark2.run("systemctl", "reset-failed", UNIT)
    spark2.run("systemctl", "start", UNIT)
    heals(spark1, spark2, engines)


def test_pair__heals_when_the_heads_engine_is_killed(
    spark1: Node, spark2: Node, engines: dict[str, str]
) -> None:
    spark1.run("systemctl", "kill", "--signal=KILL", UNIT)
    heals(spark1, spark2, engines)


def test_site__in_check_mode_on_a_bare_pair_says_what_it_would_do(bare_check: Played) -> None:
    assert bare_check.status == 0, bare_check.text[-4000:]
    assert all(recap.changed > 10 for recap in bare_check.nodes.values()), bare_check.nodes
