"""The battery on the running pair: over ssh and detached, by its timer's service, and in peace.

Six runs of `battery quick` without a false alarm: one whole (the service's), five of the guards
below, so that the two tests take about two minutes of the lab. Fifty whole ones are counted by
`guards.clean_runs`, once.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lab.play import play

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Lab, Node

pytestmark = pytest.mark.lab

TWINSPARK = "/opt/twinspark/current/venv/bin/twinspark"
STATE = "/var/lib/twinspark"
CHEAP = "first_token,determinism,recall,margin,blocks"
# while this runs another command is asked: on a quiet machine the cheap ones are over in 5 s
LONG = f"{CHEAP},neighbours,ladder,trigger,text"
SERVICE = "twinspark-battery.service"
PLAY = """\
- hosts: head
  become: true
  roles: [battery_timer]
"""


def start(lab: Lab, guards: str, *words: str) -> str:
    """Start a battery in an ssh session that ends at once."""
    command = [TWINSPARK, "battery", "quick", "--only", guards, *words]
    return lab("ssh", "spark1", "sudo", *command).stdout


def ask(spark1: Node) -> tuple[int, str]:
    """Exit status and line of `battery status`."""
    done = spark1.run(TWINSPARK, "battery", "status", check=False)
    return done.returncode, done.stdout


def ended(spark1: Node, seconds: float = 180.0) -> tuple[int, str]:
    """The same once nothing runs any more."""
    deadline = time.monotonic() + seconds
    while ": runs, " in (now := ask(spark1))[1]:
        assert time.monotonic() < deadline, now
        time.sleep(1)
    return now


def history(spark1: Node) -> list[dict[str, Any]]:
    text = spark1.text("cat", f"{STATE}/guard-history.jsonl")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def timer(lab: Lab, spark1: Node, tmp_path: Path):
    """The role, switched on; nothing is left of it afterwards."""
    book = tmp_path / "timer.yml"
    book.write_text(PLAY)

    def switched(on: bool) -> int:
        played = play(lab, str(book), "-e", json.dumps({"battery_timer_enabled": on}))
        assert played.status == 0, played.text
        return played.nodes["spark1"].changed

    assert switched(True) > 0
    yield switched
    assert switched(False) > 0
    assert spark1.run("systemctl", "cat", SERVICE, check=False).returncode != 0


def test_battery__outlives_its_ssh_session_and_repeats_without_a_false_alarm(
    lab: Lab, spark1: Node
) -> None:
    assert "pid" in start(lab, LONG)
    code, line = ask(spark1)
    assert (code, ": runs, " in line) == (0, True), line
    assert ended(spark1)[0] == 0, ask(spark1)
    for _ in range(3):
        start(lab, CHEAP, "--wait")
        assert ask(spark1)[0] == 0, spark1.text("tail", "-n", "40", f"{STATE}/battery/log")
    last = history(spark1)[-4:]
    assert [(run["battery"], run["status"], run["failed"]) for run in last] == [
        ("quick", 0, [])
    ] * 4
    assert all(run["uptime_h"] > 0 for run in last)


def test_timer__runs_the_whole_battery_and_leaves_a_running_one_alone(
    lab: Lab, spark1: Node, timer: Any
) -> None:
    assert timer(True) == 0  # a second time changes nothing
    assert "twinspark-battery.timer" in spark1.text("systemctl", "list-timers", "--no-legend")
    start(lab, LONG)
    line = ask(spark1)[1]
    spark1.run("systemctl", "start", SERVICE)  # comes back at once, and not as a failure
    assert "runs already" in spark1.text("journalctl", "-u", SERVICE, "-o", "cat", "--no-pager")
    assert line.partition(", ")[2].partition(", ")[0] in ask(spark1)[1]  # the same pid
    assert ended(spark1)[0] == 0
    done = spark1.run("systemctl", "start", SERVICE, check=False)
    said = spark1.text("journalctl", "-u", SERVICE, "-o", "cat", "--no-pager", "-n", "60")
    assert done.returncode == 0, said
    last = history(spark1)[-1]
    assert (last["battery"], last["status"]) == ("quick", 0)
    assert {"margin", "alone", "decoding", "prefilling"} <= set(last["margins"])
    assert last["uptime_h"] > 0
    shown = spark1.text(TWINSPARK, "battery", "history")
    assert "on the present versions" in shown
