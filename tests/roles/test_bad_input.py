"""Bad input on a pair: one clear error that says what to do, and nothing half-done.

What needs no node (keys, values, bounds, contexts beyond the pool, equal addresses and ranks) is in
tests/render; a changed byte of the checkpoint in tests/checkpoint.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Final

import pytest

from lab.engine import RIGHT, UNIT, answer
from lab.play import ROOT, play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Lab, Node
    from lab.play import Played

pytestmark = pytest.mark.lab

PREFLIGHT: Final = "playbooks/preflight.yml"
SMALL: Final = "/srv/small"


def complaint(played: Played) -> str:
    """All that failed, as one line; a refusal is a failure that changed nothing."""
    assert played.status != 0, played.text[-3000:]
    assert all(recap.changed == 0 for recap in played.nodes.values()), played.nodes
    return " ".join(played.text.split())


def test_preflight__another_system_and_architecture__are_refused(lab: Lab) -> None:
    sparks = [{"distribution": "Ubuntu", "version": "24.04", "architecture": "aarch64"}]
    said = complaint(play(lab, PREFLIGHT, "-e", json.dumps({"twinspark_platforms": sparks})))
    assert "spark1 is Debian 12 on x86_64; this inventory expects Ubuntu 24.04 aarch64" in said


def test_preflight__a_node_that_does_not_answer__is_named(lab: Lab, tmp_path: Path) -> None:
    other = tmp_path / "inventory.yml"
    other.write_text("all: {hosts: {spark2: {ansible_host: 10.77.0.99}}}\n")
    played = play(lab, PREFLIGHT, "-i", str(other))
    said = complaint(played)
    assert "spark2 cannot be reached at 10.77.0.99" in said
    assert "Nothing was changed on any node" in said
    assert "spark1 cannot be reached" not in said


@pytest.fixture
def dropin(spark2: Node) -> Iterator[str]:
    """A setting of the worker's that leaves the overlay out."""
    path = f"/etc/systemd/system/{UNIT}.d/90-plugins.conf"
    spark2.run("mkdir", "-p", path.rsplit("/", 1)[0])
    spark2.run("tee", path, stdin="[Service]\nEnvironment=VLLM_PLUGINS=lora_filesystem_resolver\n")
    spark2.run("systemctl", "daemon-reload")
    yield path
    spark2.run("rm", "-r", path.rsplit("/", 1)[0])
    spark2.run("systemctl", "daemon-reload")


def test_preflight__plugins_that_leave_the_overlay_out__are_refused(lab: Lab, dropin: str) -> None:
    said = complaint(play(lab, PREFLIGHT))
    assert "VLLM_PLUGINS=lora_filesystem_resolver on spark2 leaves the overlay out" in said
    assert dropin in said


@pytest.fixture
def manager(spark1: Node) -> Iterator[None]:
    """The same, inherited by all units of the head."""
    spark1.run("systemctl", "set-environment", "VLLM_PLUGINS=other")
    yield
    spark1.run("systemctl", "unset-environment", "VLLM_PLUGINS")


@pytest.mark.usefixtures("manager")
def test_preflight__inherited_plugins_that_leave_the_overlay_out__are_refused(lab: Lab) -> None:
    said = complaint(play(lab, PREFLIGHT))
    assert "VLLM_PLUGINS=other on spark1 leaves the overlay out" in said
    assert "systemctl unset-environment VLLM_PLUGINS" in said


def small_lock(folder: Path) -> Path:
    """The lock's installer and what the overlay imports: installed in seconds, 100 MB unpacked."""
    lock = (ROOT / "env" / "locks" / "lab-cpu.lock").read_text()
    wanted = "uv pydantic pydantic-core annotated-types typing-extensions typing-inspection rich "
    wanted += "markdown-it-py mdurl pygments pyyaml numpy"
    blocks = [
        match[0]
        for name in wanted.split()
        if (match := re.search(rf"(?m)^{name}==.*\n(?: .*\n)+", lock))
    ]
    assert len(blocks) > 8, wanted
    path = folder / "small.lock"
    path.write_text("".join(blocks))
    return path


@pytest.fixture
def small_disk(spark1: Node, spark2: Node) -> Iterator[None]:
    """A disk of 40 MB on both nodes, for releases."""
    for node in (spark1, spark2):
        node.run("mkdir", "-p", SMALL)
        node.run("mount", "-t", "tmpfs", "-o", "size=40m", "small", SMALL)
    yield
    for node in (spark1, spark2):
        node.run("umount", SMALL)
        node.run("rmdir", SMALL)


@pytest.mark.usefixtures("small_disk")
def test_engine__a_full_disk__leaves_nothing_and_a_retry_succeeds(
    lab: Lab, spark1: Node, spark2: Node, tmp_path: Path
) -> None:
    options = (
        "--tags", "engine_venv",
        "-e", f"engine_venv_root={SMALL}",
        "-e", "engine_venv_cache=/run/twinspark-small-cache",
        "-e", f"twinspark_engine_lock={small_lock(tmp_path)}",
    )  # fmt: skip
    played = play(lab, "site.yml", *options)
    said = " ".join(played.text.split())
    assert played.status != 0, played.text[-3000:]
    assert "No space left on device" in said
    assert "Running releases are untouched. Mend the cause" in said
    for node in (spark1, spark2):
        assert node.text("ls", f"{SMALL}/releases") == ""
        node.run("mount", "-o", "remount,size=400m", SMALL)
    assert answer(spark1) == RIGHT

    played = play(lab, "site.yml", *options)
    assert played.status == 0, played.text[-3000:]
    for node in (spark1, spark2):
        release = node.text("ls", f"{SMALL}/releases")
        node.run(f"{SMALL}/releases/{release}/venv/bin/python", "-c", "import pydantic, numpy")
        node.run("rm", "-r", "/run/twinspark-small-cache")


def test_port_taken__is_refused_with_the_program_that_holds_it(bare: Lab) -> None:
    node = bare.node("spark1")
    node.run(
        "systemd-run", "--quiet", "--unit=squatter", "--collect",
        "python3", "-m", "http.server", "8000",
    )  # fmt: skip
    end = time.monotonic() + 30
    while not node.text("ss", "-Hltn", "( sport = :8000 )") and time.monotonic() < end:
        time.sleep(0.2)
    said = complaint(play(bare, PREFLIGHT))
    node.run("systemctl", "stop", "squatter")
    assert "A port of the engine is taken on spark1 by another program" in said
    assert "python3" in said
    assert "API_PORT" in said
