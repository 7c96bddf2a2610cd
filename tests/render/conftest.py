from __future__ import annotations

import os

import pytest

from overlay.engine import Engine, python, stock_wheel


@pytest.fixture(scope="session")
def stock_engine():
    """The stock wheel in its own environment; skipped only where nobody promised it."""
    there = (stock_wheel() / "vllm").is_dir() and python().is_file()
    if not there and "TWINSPARK_STOCK_WHEEL" not in os.environ:
        pytest.skip(f"no stock wheel in {stock_wheel()}; ./run test prepares it")
    engine = Engine(overlay=False)
    yield engine
    engine.stop()
