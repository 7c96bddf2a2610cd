"""The action for long commands: it shows progress, tells failure, and survives its controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

import pytest

from lab.nodes import SCRIPT
from lab.play import play, words

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Lab, Node

pytestmark = pytest.mark.lab

UNIT: Final = "twinspark-watch-test"


def playbook(folder: Path, script: str) -> str:
    """A play of one long command on the head."""
    task = {
        "name": "Something long",
        "twinspark_watch": {
            "unit": UNIT,
            "argv": ["sh", "-c", script],
            "env": {"SAID": "so"},
            "user": "nobody",
        },
    }
    play = {"name": "Long", "hosts": "head", "become": True, "gather_facts": False, "tasks": [task]}
    path = folder / "long.yml"
    path.write_text(json.dumps([play]))
    return str(path)


def test_watch__shows_new_lines_while_it_runs(lab: Lab, spark1: Node, tmp_path: Path) -> None:
    script = "echo first $SAID; sleep 4; echo second $(id -un); sleep 4"
    played = play(lab, playbook(tmp_path, script))
    assert played.status == 0, played.text[-2000:]
    assert "spark1: first so" in played.text
    assert "spark1: second nobody" in played.text
    assert spark1.run("systemctl", "is-active", UNIT, check=False).stdout.strip() == "inactive"


def test_watch__a_failure__is_told_with_the_last_line(lab: Lab, tmp_path: Path) -> None:
    played = play(lab, playbook(tmp_path, "echo all well; echo the disk is gone >&2; exit 3"))
    assert played.status != 0
    assert "the disk is gone" in played.text
    assert "rc: 3" in played.text


def test_watch__a_controller_that_goes_away__is_joined_by_the_next(
    lab: Lab, spark1: Node, tmp_path: Path
) -> None:
    count = "/run/twinspark-watch-count"
    spark1.run("install", "-m", "666", "/dev/null", count)
    path = playbook(tmp_path, f"echo begun >> {count}; echo at work; sleep 25; echo over")
    with subprocess.Popen(
        [SCRIPT, *words(lab, path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **lab.settings},
    ) as first:
        end = time.monotonic() + 60
        while not spark1.text("cat", count) and time.monotonic() < end:
            time.sleep(0.5)
        os.killpg(first.pid, signal.SIGINT)
    played = play(lab, path)
    assert played.status == 0, played.text[-2000:]
    assert "joins the one that is still at work" in played.text
    assert spark1.text("cat", count) == "begun"
    spark1.run("rm", count)
