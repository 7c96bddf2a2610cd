"""Digests of the stock sources that the patches were written against.

`pins.json` is written by `twinspark overlay pin --wheel DIR`, and only by a person who has read
what changed: a digest says that the text under a patch has been looked at.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("pins.json")


@cache
def _pins() -> dict[str, str]:
    return dict(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.is_file() else {}


def pinned(*targets: str) -> dict[str, str]:
    """Digest of each target; empty, which matches no source, where none is pinned yet."""
    return {target: _pins().get(target, "") for target in targets}
