"""Take over an engine's rendered environment, as systemd would hand it to the engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twinspark.host.parse import environment

KEEP = ("PATH", "HOME", "LANG", "LC_ALL")


def take_over(source: str) -> None:
    """Replace this process's environment by KEY=VALUE lines of a file, or of standard input (-).

    Must come before anything is imported that reads the environment (torch, flashinfer).

    Raises:
        OSError: The file cannot be read.
    """
    text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    kept = {key: os.environ[key] for key in KEEP if key in os.environ}
    os.environ.clear()
    os.environ.update({**kept, **environment(text)})
