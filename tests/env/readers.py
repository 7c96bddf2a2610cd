"""The other readers of env files, for comparison with ours."""

from __future__ import annotations

import io
import subprocess
from typing import TYPE_CHECKING

from dotenv import dotenv_values

from twinspark.variant.dotenv import parse

if TYPE_CHECKING:
    from pathlib import Path

# What bash sets by itself in an empty environment; our reader takes none of it as a key.
BASH_OWN = {"PWD", "SHLVL", "_", "OLDPWD"}


def ours(text: str) -> dict[str, str]:
    return {item.key: item.value for item in parse(text, "file.env")}


def python_dotenv(text: str) -> dict[str, str | None]:
    return dict(dotenv_values(stream=io.StringIO(text), interpolate=False))


def bash(path: Path) -> dict[str, str]:
    """The variables that bash exports after reading the file, as bytes decoded from UTF-8."""
    done = subprocess.run(
        ["/usr/bin/env", "-i", "/bin/bash", "-c", 'set -a; . "$0"; /usr/bin/env -0', path],
        check=True,
        capture_output=True,
    )
    pairs = (entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)
    return {key.decode(): value.decode() for key, value in pairs if key.decode() not in BASH_OWN}
