"""The battery's timer and service: what they run, and that systemd has nothing to object."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from host.render import ROOT, lines, render
from roles.role_table import load
from twinspark.guards import battery_cli

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "etc/systemd/system"
SERVICE, TIMER = "twinspark-battery.service", "twinspark-battery.timer"
TASKS = ROOT / "roles/battery_timer/tasks"


def values(root: str = "/opt/twinspark") -> dict[str, object]:
    """The role's defaults, with what the inventory gives."""
    found = load(ROOT / "roles/battery_timer/defaults/main.yml")
    return found | {"battery_timer_root": root, "battery_timer_variant": "lab-cpu"}


def text(name: str, root: str = "/opt/twinspark") -> str:
    return render(f"{FOLDER}/{name}.j2", **values(root))


def command() -> list[str]:
    """ExecStart, as words."""
    (line,) = [x for x in lines(text(SERVICE)) if x.startswith("ExecStart=")]
    return shlex.split(line.partition("=")[2])


def test_timer__is_off_unless_it_is_switched_on():
    assert values()["battery_timer_enabled"] is False


def test_service__runs_what_the_command_line_understands_and_overtakes_no_battery():
    program, battery, *words = command()
    assert (program, battery) == ("/opt/twinspark/current/venv/bin/twinspark", "battery")
    parser = argparse.ArgumentParser()
    battery_cli.add_arguments(parser)
    args = parser.parse_args(words)
    assert (args.what, args.foreground, args.unless_running) == ("quick", True, True)
    assert str(args.etc) == "/opt/twinspark/current/etc/lab-cpu"
    assert f"ReadWritePaths={args.state}" in lines(text(SERVICE))
    assert args.settle > 0


def test_service__ends_and_leaves_a_stopped_engine_alone():
    unit = lines(text(SERVICE))
    assert "Type=oneshot" in unit
    assert "TimeoutStartSec=7200" in unit
    engine = "vllm-deepseek-mxfp4@lab-cpu.service"
    assert f"ExecCondition=/usr/bin/systemctl is-active --quiet {engine}" in unit


def test_timer__counts_from_the_end_of_a_run():
    unit = lines(text(TIMER))
    assert {"OnUnitInactiveSec=21600", "OnActiveSec=1800", "WantedBy=timers.target"} <= unit


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Both units, and the program that the service starts."""
    program = tmp_path / "opt/current/venv/bin/twinspark"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "units").mkdir()
    for name in (SERVICE, TIMER):
        (tmp_path / "units" / name).write_text(text(name, str(tmp_path / "opt")))
    return tmp_path / "units"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
@pytest.mark.parametrize(("extra", "clean"), [("", True), ("OnBotSec=1\n", False)])
@pytest.mark.parametrize("name", [SERVICE, TIMER])
def test_units__systemd_has_nothing_to_say_and_the_check_sees_a_wrong_key(
    units: Path, tmp_path: Path, name: str, extra: str, clean: bool
):
    (checks,) = [
        task["ansible.builtin.template"]["validate"]
        for task in load(TASKS / "timer.yml")
        if "validate" in task.get("ansible.builtin.template", {})
        and f"%s:{name}" in task["ansible.builtin.template"]["validate"]
    ]
    section = "[Timer]\n" if name == TIMER else "[Service]\n"
    given = tmp_path / "given"  # Ansible checks a file of another name
    given.write_text((units / name).read_text().replace(section, section + extra))
    done = subprocess.run(
        ["sh", "-c", checks.replace("%s", str(given))],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{units}:"}, check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode == 0) is clean, done.stdout + done.stderr


def test_uninstall__removes_every_file_that_is_installed():
    installed = {
        task["ansible.builtin.template"]["dest"].rpartition("/")[2]
        for task in load(TASKS / "timer.yml")
        if "ansible.builtin.template" in task
    }
    (removed,) = [set(task["loop"]) for task in load(TASKS / "uninstall.yml") if task.get("loop")]
    assert {f"{x}" for x in removed} == installed
