"""On the converged lab: a fault on one node stops its stage and prints its row's advice."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "lab" / "lab"
INVENTORY = os.environ.get("TWINSPARK_INVENTORY", "env/lab.yml")
FAKE = "/opt/twinspark-fakes/twinspark-fake"

pytestmark = pytest.mark.lab


def _lab(*words):
    return subprocess.run(
        [LAB, *words], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )


def _play(playbook):
    program = ROOT / ".venv" / "bin" / "ansible-playbook"
    done = _lab("ctl", str(program), "-i", INVENTORY, f"playbooks/{playbook}.yml")
    return done, " ".join(done.stdout.split())


@pytest.fixture
def thrown(request):
    """Throw switches on the second node, and take them back."""
    assert _lab("exec", "spark2", FAKE, "set", *request.param).returncode == 0
    yield request.param
    _lab("exec", "spark2", FAKE, "clear")


def test_diagnose__healthy_pair__has_nothing_to_say():
    done, said = _play("diagnose")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " 0 wrong" not in said
    assert " wrong," not in said


@pytest.mark.usefixtures("thrown")
@pytest.mark.parametrize("thrown", [["driver_drifted", "gid_gone", "cable_errors"]], indirect=True)
def test_diagnose__three_faults_on_one_node__are_three_rows_and_no_fourth():
    done, said = _play("diagnose")
    assert done.returncode != 0
    assert "3 wrong" in said, done.stdout[-3000:]
    for row in ("S61", "S63", "S64"):
        assert f"(docs/symptoms.md {row})" in said


@pytest.mark.usefixtures("thrown")
@pytest.mark.parametrize("thrown", [["ota_torn"]], indirect=True)
def test_accelerator__torn_ota__is_refused_before_anything_is_held():
    done, said = _play("accelerator")
    assert done.returncode != 0
    assert "(docs/symptoms.md S04)" in said
    assert "is on hold" not in said
