"""The two nodes' own reports, merged: a driver that moved on one of them is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinspark.guards import report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node
    from twinspark.guards.model import Check

pytestmark = pytest.mark.lab

FAKES = "/opt/twinspark-fakes"  # an nvidia-smi that answers as on a Spark
GUARD = "/opt/twinspark/current/venv/bin/twinspark guard --only identity"


@pytest.fixture
def drifted(spark2: Node) -> Iterator[None]:
    """Another driver on the second node."""
    spark2.run(f"{FAKES}/twinspark-fake", "set", "driver_drifted")
    yield
    spark2.run(f"{FAKES}/twinspark-fake", "clear")


def compared(nodes: tuple[Node, Node], folder: Path) -> Check:
    """What the merge of both nodes' reports says about what must be equal."""
    found = []
    for node in nodes:
        command = (
            f"at=$(mktemp -d) && {GUARD} --state $at --json $at/it.json >&2 && cat $at/it.json"
            " && rm -r $at"
        )
        said = node.text("env", f"PATH={FAKES}:/usr/bin:/bin", "sh", "-c", command)
        path = folder / f"{node.name}.json"
        path.write_text(said, encoding="utf-8")
        found.append(report.read(path))
    (check,) = (one for one in report.merge(found).checks if one.name == "identity.equal")
    return check


def test_identity__of_the_converged_pair_is_equal(
    spark1: Node, spark2: Node, tmp_path: Path
) -> None:
    assert compared((spark1, spark2), tmp_path).ok


@pytest.mark.usefixtures("drifted")
def test_identity__names_the_driver_that_moved_on_one_node(
    spark1: Node, spark2: Node, tmp_path: Path
) -> None:
    check = compared((spark1, spark2), tmp_path)
    assert check.ok is False
    assert "driver" in check.detail
    assert "580.178.04" in check.detail
