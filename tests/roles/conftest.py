"""Each lab run is made once and serves the tests of every role."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.play import ROOT, Played, play
from roles.alternatives import HOST, PLAYED, values
from roles.hosts import testinfra
from roles.narrated import Narrated, read

if TYPE_CHECKING:
    from testinfra.host import Host

    from lab.nodes import Lab

NODES = ("spark1", "spark2")
CHECK = ("site.yml", "--check", "--diff")
LOG = ROOT / ".cache" / "log" / "site.log"


@pytest.fixture(params=NODES)
def node(request: pytest.FixtureRequest, lab: Lab) -> Host:
    """Each node of the converged pair, as testinfra sees it."""
    return testinfra(lab.node(request.param))


@pytest.fixture(scope="session")
def settled(lab: Lab) -> Narrated:
    """The latest `./run up` on this lab; the lab stage plays it twice before the tests."""
    state = os.environ.get("TWINSPARK_LAB_STATE", "/var/tmp/twinspark-lab")  # noqa: S108 - the lab's own default
    assert lab.settings == {}
    since = (Path(state) / "binds").stat().st_mtime
    assert LOG.exists(), "no ./run up yet"
    assert LOG.stat().st_mtime > since, "the log is of another lab: ./run up"
    return read(LOG.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def converged_check(lab: Lab) -> Played:
    """site.yml in check mode on the converged pair."""
    return play(lab, *CHECK)


@pytest.fixture(scope="session")
def bare_check(bare: Lab) -> Played:
    """site.yml in check mode on a bare pair, which stays bare."""
    played = play(bare, *CHECK)
    for name in NODES:
        assert bare.node(name).run("test", "-e", "/opt/twinspark", check=False).returncode == 1
    return played


@pytest.fixture(scope="session")
def other_pair(bare: Lab, bare_check: Played) -> dict[str, Host]:
    """The bare pair after the host's roles were played on it with other values."""
    assert bare_check.status == 0, "the overlay's wheel was built in that run"
    played = play(bare, "tests/roles/alternatives.yml", "-e", json.dumps(HOST))
    assert played.status == 0, played.text[-4000:]
    return {name: testinfra(bare.node(name)) for name in NODES}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the other values' files lie."""
    return tmp_path_factory.mktemp("other")


@pytest.fixture(scope="session")
def other_check(lab: Lab, folder: Path) -> Narrated:
    """site.yml in check mode on the converged pair with another value for every role."""
    played = play(lab, *CHECK, "-e", json.dumps(values(folder)))
    assert played.status == 0, played.text[-4000:]
    return read(played.text)


@pytest.fixture(scope="session")
def other_guard(lab: Lab, folder: Path) -> Path:
    """The guard stage with another value, for real; the folder of its reports."""
    given = PLAYED["smoke_guard"] | {"smoke_guard_report_dir": str(folder / "guard")}
    played = play(lab, "playbooks/guard.yml", "--tags", "smoke_guard", "-e", json.dumps(given))
    assert played.status == 0, played.text[-4000:]
    return folder / "guard"
