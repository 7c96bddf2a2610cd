"""Fixtures of the checkpoint tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checkpoint.builders import checkpoint
from twinspark.checkpoint import live, verify

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on the machine that tests: to them no engine is up unless they say so."""
    monkeypatch.setattr(live, "engine", lambda: None)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small well-formed checkpoint without a manifest."""
    return checkpoint(tmp_path / "model")


@pytest.fixture
def verified(model: Path) -> Path:
    """The same, with manifest and stamp."""
    assert verify.verify(model, verify.Options(quiet=True)).problems == ()
    return model
