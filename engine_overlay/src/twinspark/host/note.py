"""What a tool leaves for its next run and for the checks: one JSON object a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read(path: Path) -> dict[str, Any]:
    """Return what an earlier run left; empty when that is nothing, or torn: it is done again.

    Raises:
        OSError: It is there and cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a note whole, or not at all.

    Raises:
        OSError: It cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(value, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(path)
