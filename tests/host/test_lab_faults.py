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

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def _lab(*words):
    return subprocess.run(
        [LAB, *words], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )


def _play(playbook):
    program = ROOT / ".venv" / "bin" / "ansible-playbook"
    return _lab("ctl", str(program), "-i", INVENTORY, f"playbooks/{playbook}.yml")


@pytest.fixture
def fault(request):
    """Throw one switch on the second node, and take it back."""
    assert _lab("exec", "spark2", FAKE, "set", request.param).returncode == 0
    yield request.param
    _lab("exec", "spark2", FAKE, "clear")


@pytest.mark.parametrize(
    ("fault", "playbook", "row"),
    [
        ("ota_torn", "accelerator", "S04"),
        ("link_13g", "fabric", "S10"),
        ("gid_gone", "diagnose", "S64"),
    ],
    indirect=["fault"],
)
@pytest.mark.usefixtures("fault")
def test_fault__stops_its_stage_and_says_what_to_do(playbook, row):
    done = _play(playbook)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert f"docs/symptoms.md {row}" in said, done.stdout[-3000:]
