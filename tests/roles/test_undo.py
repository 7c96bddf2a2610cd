"""Two releases side by side, an interrupted deployment, the way back. Ends on the other release."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

import pytest

from lab.engine import RIGHT, answer, release, served
from lab.nodes import SCRIPT
from lab.play import ROOT, play, words

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Lab, Node

pytestmark = [pytest.mark.lab, pytest.mark.undo]

INSTALLS: Final = "Every locked package is installed"
LIMIT_S: Final = 300


@pytest.fixture(scope="module")
def deploy_other(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options that deploy a second release: the same packages from a lock with one more comment."""
    lock = tmp_path_factory.mktemp("lock") / "other.lock"
    text = (ROOT / "env" / "locks" / "lab-cpu.lock").read_text()
    lock.write_text(f"{text}# another release\n")
    return ("site.yml", "--tags", "engine,serve", "-e", f"twinspark_engine_lock={lock}")


@pytest.fixture(scope="module")
def pair(spark1: Node, spark2: Node) -> tuple[Node, Node]:
    """Head and worker."""
    return spark1, spark2


@pytest.fixture(scope="module")
def first(pair: tuple[Node, Node]) -> str:
    """The release that runs before any of this."""
    assert answer(pair[0]) == RIGHT
    return release(pair[0])


def whole(node: Node) -> list[str]:
    """The releases that are whole."""
    return node.text("sh", "-c", "ls -d /opt/twinspark/releases/*/release.json").split()


def interrupt(lab: Lab, options: tuple[str, ...], task: str, log: Path) -> int:
    """Play, and press Ctrl-C some seconds into a task."""
    with log.open("w") as stream:
        playing = subprocess.Popen(
            [SCRIPT, *words(lab, *options)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **lab.settings},
            start_new_session=True,
        )
    end = time.monotonic() + LIMIT_S
    while task not in log.read_text() and playing.poll() is None:
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.5)
    time.sleep(5)
    os.killpg(playing.pid, signal.SIGINT)
    return playing.wait(timeout=60)


def test_deployment__interrupted_while_it_installs__is_no_release_and_the_pair_serves_on(
    lab: Lab, pair: tuple[Node, Node], first: str, deploy_other: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    before = [whole(node) for node in pair]
    assert interrupt(lab, deploy_other, INSTALLS, log) != 0, log.read_text()[-2000:]
    assert [whole(node) for node in pair] == before
    for node in pair:
        assert release(node) == first
    assert answer(pair[0]) == RIGHT


def test_deployment__run_again_after_the_interruption__serves_the_second_release(
    lab: Lab, pair: tuple[Node, Node], first: str, deploy_other: tuple[str, ...]
) -> None:
    played = play(lab, *deploy_other)
    assert played.status == 0, played.text[-3000:]
    second = release(pair[0])
    assert second != first
    assert {named(node) for node in pair for named in (release, served)} == {second}
    assert answer(pair[0]) == RIGHT
    for node in pair:
        kept = node.text("ls", "/opt/twinspark/releases").split()
        assert set(kept) == {first, second}


def test_rollback__serves_the_release_before_and_a_second_goes_forward(
    lab: Lab, pair: tuple[Node, Node], first: str
) -> None:
    second = release(pair[0])
    for wanted in (first, second):
        played = play(lab, "playbooks/rollback.yml")
        assert played.status == 0, played.text[-3000:]
        assert {named(node) for node in pair for named in (release, served)} == {wanted}
        assert answer(pair[0]) == RIGHT
