"""What a fault is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import State


@dataclass(frozen=True)
class Fault:
    """One thing that breaks.

    `row` is its row in docs/symptoms.md, `check` the one check that must say so; with ""
    nothing may fail, as the switch is a healthy node's other shape.
    """

    title: str
    row: int
    check: str
    break_: Callable[[State], None]
