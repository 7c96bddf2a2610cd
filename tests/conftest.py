"""Fixtures of the converged lab (`pytest -m lab`, after `./run up`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.nodes import Lab, Node

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The running lab. A lab that is down is a failure: `-m lab` was asked for."""
    running = Lab()
    if "spark1" not in running("status").stdout:
        pytest.fail("the lab is not up: ./run up")
    return running


@pytest.fixture(scope="session")
def spark1(lab: Lab) -> Node:
    """Rank 0, the head."""
    return lab.node("spark1")


@pytest.fixture(scope="session")
def spark2(lab: Lab) -> Node:
    """Rank 1, the worker."""
    return lab.node("spark2")


@pytest.fixture(scope="session")
def bare() -> Iterator[Lab]:
    """A second lab beside the converged one: just booted, without a way out."""
    second = Lab({
        "TWINSPARK_LAB_NAME": "bare",
        "TWINSPARK_LAB_NET": "none",
        "TWINSPARK_LAB_STATE": "/var/tmp/twinspark-bare",  # noqa: S108 - a lab's volatile state
    })  # fmt: skip
    second("up")
    yield second
    second("down")
