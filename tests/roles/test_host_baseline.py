"""Settings that the host stage writes."""

from __future__ import annotations

import re

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
