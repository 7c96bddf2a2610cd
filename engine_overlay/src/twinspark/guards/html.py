"""One self-contained page (placeholder until the pictures are drawn)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinspark.guards.model import Report


def page(report: Report) -> str:
    """The report as one page."""
    return f"<!doctype html><title>{len(report.every())} checks</title>"
