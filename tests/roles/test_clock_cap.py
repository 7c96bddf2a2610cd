"""The clock cap's unit: what it runs, and that systemd has nothing to say about it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from host.render import ROOT, lines, render

VALUES = {
    "clock_cap_minimum_mhz": 300,
    "clock_cap_maximum_mhz": 2200,
    "clock_cap_probe_path": "/usr/sbin:/usr/bin",
    "__clock_cap_reading": "/run/twinspark-clock.json",
}
UNIT = "etc/systemd/system/twinspark-clock-cap.service.j2"


def test_unit__sets_the_lock_at_every_boot_and_takes_it_back():
    unit = lines(render(UNIT, **VALUES))
    assert "ExecStart=/usr/bin/env nvidia-smi -lgc 300,2200" in unit
    assert "ExecStop=/usr/bin/env nvidia-smi -rgc" in unit
    assert {"Type=oneshot", "RemainAfterExit=yes", "WantedBy=multi-user.target"} <= unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
@pytest.mark.parametrize(("extra", "clean"), [("", True), ("Restrat=yes\n", False)])
def test_unit__systemd_has_nothing_to_say_and_the_check_sees_a_wrong_key(tmp_path, extra, clean):
    text = render(UNIT, **VALUES).replace("[Service]\n", f"[Service]\n{extra}")
    (tmp_path / "unit").write_text(text)
    tasks = (ROOT / "roles/clock_cap/tasks/unit.yml").read_text(encoding="utf-8")
    command = next(line for line in tasks.splitlines() if "validate:" in line).split("validate: ")[
        1
    ]
    done = subprocess.run(
        ["sh", "-c", command.replace("%s", str(tmp_path / "unit"))],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode == 0) is clean, done.stdout + done.stderr
