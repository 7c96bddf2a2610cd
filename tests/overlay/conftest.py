from __future__ import annotations

import os

import pytest

from overlay.engine import Engine, python, stock_wheel


def pytest_collection_modifyitems(items):
    """Tests that need the wheel say why they are skipped where it is not there."""
    here = [item for item in items if "tests/overlay/" in str(item.path)]
    missing = None
    if not (stock_wheel() / "vllm").is_dir():
        missing = f"no stock wheel in {stock_wheel()}; ./run test prepares it"
    elif not python().is_file():
        missing = f"no engine environment at {python()}; ./run test prepares it"
    for item in here:
        # Where the wheel was promised its absence is a failure, not a skip.
        if (
            missing
            and "TWINSPARK_STOCK_WHEEL" not in os.environ
            and item.get_closest_marker("vllm")
        ):
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def pristine():
    """The stock engine, plugin off; every scenario in its own fork."""
    engine = Engine(overlay=False)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def overlaid():
    """The same engine with the overlay, told that it is on a Spark's GPU."""
    engine = Engine(overlay=True, TWINSPARK_OVERLAY_OVERRIDE="platform=cuda/12.1")
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def wheel():
    return stock_wheel()
