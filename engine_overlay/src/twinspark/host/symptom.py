"""What a row of the symptom table is."""

from __future__ import annotations

from typing import NamedTuple


class Symptom(NamedTuple):
    """One row: what is seen, why, what helps, who reported it."""

    symptom: str
    cause: str
    fix: str
    source: str
    elsewhere: str = ""  # who looks, where it is no check of this package
