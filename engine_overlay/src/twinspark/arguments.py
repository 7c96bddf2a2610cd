"""Types of command-line arguments that several programs share; standard library only."""

from __future__ import annotations

import argparse
from typing import Final

DAY_S: Final = 86_400.0  # the kernel counts a stream's patience in ms, 32 bits of them


def seconds(text: str) -> float:
    """An argument that is a time to wait, in seconds.

    Raises:
        argparse.ArgumentTypeError: it is no number above 0, or more than a day.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number <= DAY_S:  # nor for nan
        raise argparse.ArgumentTypeError(f"{text!r} is no time: above 0, at most {DAY_S:.0f} s")
    return number
