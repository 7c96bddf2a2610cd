"""Read the SM clock under load: a lock cannot be read back, so only this shows that a cap holds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.host import note
from twinspark.host.parse import amount, number
from twinspark.host.record import run_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

SLACK_MHZ = 15  # the driver steps the clock in 15 MHz
FLOOR_MHZ = (
    1500  # below it under load: the unit runs on a lower power level (850 MHz has been reported)
)
WARM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Clocks under load in MHz."""

    samples: tuple[int, ...]

    @classmethod
    def from_json(cls, text: str) -> Reading:
        """Read what a run has left.

        Raises:
            ValueError, LookupError, TypeError: It is torn.
        """
        return cls(tuple(int(one) for one in json.loads(text)["samples"]))

    @property
    def highest(self) -> int:
        """The highest clock seen."""
        return max(self.samples, default=0)

    @property
    def median(self) -> float:
        """The median clock."""
        return statistics.median(self.samples) if self.samples else 0.0

    @property
    def said(self) -> str:
        """The reading in words."""
        count = len(self.samples)
        return f"median {self.median:g} MHz, highest {self.highest} MHz of {count} readings"


def read_clock() -> int | None:
    """Return the SM clock in MHz; None when nvidia-smi is absent, hangs or does not say."""
    asked = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader"]
    answer = run_command(asked, dict(os.environ))
    return number(answer["out"]) if answer["rc"] == 0 else None


def sample(seconds: float, read: Callable[[], int | None], *, pause: float = 0.25) -> Reading:
    """Read the clock for a while."""
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        value = read()
        if value is not None:
            found.append(value)
        time.sleep(pause)
    return Reading(tuple(found))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--cap", type=int, required=True, help="the cap in MHz")
    parser.add_argument(
        "--burn", nargs="+", required=True, help="program that loads the GPU and ends by itself"
    )
    parser.add_argument(
        "--seconds", type=amount, default=6.0, help="length of the reading (default: %(default)s)"
    )
    parser.add_argument(
        "--warm", type=amount, default=WARM_SECONDS, help="seconds before it (default: %(default)s)"
    )
    parser.add_argument("--write", type=Path, required=True, help="where the reading is written")


def run(args: argparse.Namespace) -> int:
    """Burn, read, write down: 0 the clock was read, 2 there was no load. Checks judge it later.

    Raises:
        OSError: There is no such program, or the reading cannot be written.
    """
    # a file, as a full pipe that nobody reads would stop the load
    with tempfile.TemporaryFile("w+", errors="replace") as words:
        burning = subprocess.Popen(args.burn, stdout=subprocess.DEVNULL, stderr=words)
        try:
            time.sleep(args.warm)
            reading = sample(args.seconds, read_clock)
            ended = burning.poll()
        finally:
            burning.terminate()
            burning.wait(timeout=30)
        words.seek(0)
        said = " ".join(words.read().split())[-200:]
    if ended is not None:
        print(f"{args.burn[0]} ended with {ended} before the reading was over: {said or 'no word'}")
        return 2
    if not reading.samples:
        print("nvidia-smi said no clock")
        return 2
    note.write(args.write, {"cap": args.cap, "samples": reading.samples})
    print(
        f"read: median {reading.median:g} MHz, highest {reading.highest} MHz under load, cap "
        f"{args.cap} MHz"
    )
    return 0
