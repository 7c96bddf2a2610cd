"""The ordinary `molecule test` of every role that has a scenario, on nodes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nodes import Lab
from lab.play import ROOT

pytestmark = pytest.mark.lab

SCENARIOS = sorted(path.parents[2] for path in ROOT.glob("roles/*/molecule/default/molecule.yml"))
MUST = ("syntax", "create", "converge", "idempotence", "verify", "destroy")


@pytest.mark.parametrize("role", SCENARIOS, ids=lambda path: path.name)
def test_molecule__plays_the_role_alone_and_leaves_nothing(role: Path) -> None:
    programs = Path(sys.prefix) / "bin"
    done = subprocess.run(
        [programs / "molecule", "test"],
        cwd=role,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NO_COLOR": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, said[-4000:]
    for action in MUST:
        assert f"{action}: Executed: Successful" in said, said[-4000:]
    assert "twinspark-mole" not in Lab()("trace").stdout
