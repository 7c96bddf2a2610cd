"""On the nodes: the head fetches from a Hub with its locked client, the worker copies it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from checkpoint.builders import shard
from checkpoint.fake_hub import COMMIT, REPOSITORY
from lab.nodes import SCRIPT
from lab.play import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Lab, Node

pytestmark = pytest.mark.lab

ADDRESS: Final = ("10.77.0.1", "8099")
FETCHED: Final = "/srv/models/fetched"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """A Hub where the controller is, with a checkpoint of two small shards."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x"}))
    for name in ("a", "b"):
        tensors = {f"{name}.weight": ("U8", [3_000_000], os.urandom(3_000_000))}
        shard(tmp_path / f"{name}.safetensors", tensors)
    program = Path(__file__).with_name("fake_hub.py")
    command = [SCRIPT, "ctl", sys.executable, program, tmp_path, *ADDRESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "ready\n"
        yield f"http://{ADDRESS[0]}:{ADDRESS[1]}"
        serving.terminate()


@pytest.fixture
def gone(spark1: Node, spark2: Node) -> Iterator[None]:
    """The nodes without the checkpoint and the Hub's client, before and after."""
    yield
    for node in (spark1, spark2):
        node.run("rm", "-rf", FETCHED, "/opt/twinspark/tools/hub")


@pytest.mark.usefixtures("gone")
def test_hub__fetched_by_the_head_copied_by_the_worker_and_then_left_alone(
    lab: Lab, spark1: Node, spark2: Node, hub: str, tmp_path: Path
) -> None:
    settings = {
        "checkpoint_source": "hub",
        "checkpoint_hub_endpoint": hub,
        "checkpoint_repository": REPOSITORY,
        "checkpoint_revision": COMMIT,
        "checkpoint_directory": FETCHED,
        "checkpoint_kind": "any",
        "checkpoint_beside_engine": True,
    }
    options = ("--tags", "weights", "-e", json.dumps(settings))
    played = play(lab, "site.yml", *options)
    assert played.status == 0, played.text[-3000:]
    shards = sorted(tmp_path.glob("*.safetensors"))
    wanted = subprocess.run(
        ["sha256sum", *(path.name for path in shards)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for node in (spark1, spark2):
        for line in wanted.splitlines():
            digest, name = line.split()
            assert node.text("sha256sum", f"{FETCHED}/{name}").split()[0] == digest
    assert spark2.run("test", "-e", "/opt/twinspark/tools/hub", check=False).returncode == 1

    again = play(lab, "site.yml", *options)
    assert again.status == 0, again.text[-3000:]
    assert all(recap.changed == 0 for recap in again.nodes.values()), again.text[-3000:]
