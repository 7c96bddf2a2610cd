"""Wait until the engine answers, and tell meanwhile what it does: its log's last line, when new.

A start loads 167 GB and compiles what its release has not compiled yet: 9 to 13 minutes in the
field's reports. Runs on the head, by root, who may read the journal.
"""

from __future__ import annotations

import subprocess
import time
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

from twinspark.arguments import seconds

if TYPE_CHECKING:
    import argparse

LOOK_S = 2.0
ANSWER_S = 5.0
LINES_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--url", required=True, help="what answers 200 once the engine is up")
    parser.add_argument("--unit", required=True, help="the engine's unit")
    parser.add_argument(
        "--timeout", type=seconds, default=2700.0, metavar="S", help="give up after so long"
    )


def answers(url: str) -> bool:
    """Whether a GET brings 200."""
    try:
        with urlopen(url, timeout=ANSWER_S) as reply:  # noqa: S310 - the role's own http address
            return bool(reply.status == 200)
    except (URLError, HTTPException, OSError):
        return False


def journal(unit: str, lines: int) -> list[str]:
    """Return the last lines that the unit has said since the boot."""
    words = [
        "journalctl",
        f"--unit={unit}",
        "--boot",
        f"--lines={lines}",
        "--output=cat",
        "--quiet",
    ]
    done = subprocess.run(
        [*words, "--no-pager"], capture_output=True, text=True, errors="replace", check=False
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def state(unit: str) -> tuple[str, int]:
    """Return a unit's state, and how often systemd has started it again."""
    words = ["systemctl", "show", unit, "--property=ActiveState,NRestarts"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return found.get("ActiveState", "unknown"), int(found.get("NRestarts") or 0)


def run(args: argparse.Namespace) -> int:
    """Wait: 0 it answers; 1 its unit has failed, or the time is over (the log's end says why)."""
    start, last = time.monotonic(), ""
    while not answers(args.url):
        spent = time.monotonic() - start
        active, again = state(args.unit)
        if active == "failed" or spent > args.timeout:
            why = "has failed" if active == "failed" else f"gives no answer within {spent:.0f} s"
            print("\n".join(journal(args.unit, LINES_SHOWN)))
            print(f"{args.unit} {why}, started again {again} times: its log's end stands above")
            return 1
        line = (journal(args.unit, 1) or [active])[-1]
        if again:
            line = f"started again {again} times: {line}"
        if line != last:
            print(f"{spent:.0f} s: {line[:160]}", flush=True)
            last = line
        time.sleep(LOOK_S)
    print(f"answers after {time.monotonic() - start:.0f} s", flush=True)
    return 0
