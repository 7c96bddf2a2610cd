"""Settings that the host stage writes."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from host.render import ROOT, lines, render

DEFAULTS = yaml.safe_load(
    (ROOT / "roles/host_baseline/defaults/main.yml").read_text(encoding="utf-8")
)


def test_sysctl__has_each_setting():
    text = render("etc/sysctl.d/60-twinspark.conf.j2", host_baseline_sysctl={"vm.swappiness": 1})
    assert lines(text) == {"vm.swappiness = 1"}


@pytest.mark.parametrize(
    ("name", "spared"),
    [
        ("vllm", True),
        ("VLLM::Worker_TP0", True),
        ("python3.12", True),
        ("chrome", False),
        ("not-vllm", False),
    ],
)
def test_earlyoom__avoids_the_engine_s_processes_and_no_others(name, spared):
    avoid = DEFAULTS["host_baseline_earlyoom_avoid"]
    assert bool(re.search(avoid, name)) is spared
    text = render("etc/twinspark/earlyoom.env.j2", host_baseline_earlyoom_avoid=avoid)
    assert f"--avoid '{avoid}'" in text


def test_earlyoom__its_drop_in_reads_the_file_after_the_system_s():
    text = render("etc/systemd/system/earlyoom.service.d/twinspark.conf.j2")
    assert "EnvironmentFile=/etc/twinspark/earlyoom.env" in lines(text)


def test_command__is_the_release_s_and_before_there_is_one_the_checkpoint_tool(tmp_path):
    program = tmp_path / "twinspark"
    program.write_text(render("usr/local/bin/twinspark.j2", host_baseline_root=tmp_path))

    def said(*words):
        done = subprocess.run(["sh", program, *words], capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout + done.stderr).strip()

    def tool(path, name):
        path.parent.mkdir(parents=True)
        path.write_text(f'#!/bin/sh\necho {name} "$#" "$1"\n')
        path.chmod(0o755)

    assert said("guard") == (
        2, "twinspark: no release is installed on this node yet: play site.yml",
    )  # fmt: skip
    tool(tmp_path / "bin/twinspark-checkpoint", "tool")
    assert said("checkpoint", "inspect a b") == (0, "tool 1 inspect a b")
    tool(tmp_path / "current/venv/bin/twinspark", "release")
    assert said("checkpoint", "inspect a b") == (0, "release 2 checkpoint")
