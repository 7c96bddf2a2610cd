"""Fixtures of the converged lab (`pytest -m lab`, after `./run up`)."""

from __future__ import annotations

import pytest

from lab.nodes import Lab, Node


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
