"""`TWINSPARK_OVERLAY_OVERRIDE`: the one way round the overlay's refusals, for tests and rescue.

A comma-separated list of `key=value`:

* `version=any`     install on another vLLM version (source hashes still hold);
* `hash=ID`         install patch ID although the source under it differs;
* `skip=ID`         leave patch ID out (the A arm of an A/B comparison);
* `platform=cuda/12.1`  believe this platform and capability instead of asking the engine.

Each one used is logged as a warning and shown in the process report.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

VARIABLE = "TWINSPARK_OVERLAY_OVERRIDE"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Parsed override list; empty in every normal run."""

    any_version: bool = False
    hashes: frozenset[str] = frozenset()
    skips: frozenset[str] = frozenset()
    platform: str | None = None
    capability: tuple[int, int] | None = None


def parse(text: str, known: frozenset[str]) -> Overrides:
    """Parse an override list.

    Args:
        text: Value of the variable.
        known: Ids of all patches.

    Raises:
        ValueError: An unknown key, an unknown patch id, or a malformed platform.
    """
    hashes: set[str] = set()
    skips: set[str] = set()
    any_version, platform, capability = False, None, None
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = item.partition("=")
        if key in {"hash", "skip"} and value not in known:
            raise ValueError(f"{VARIABLE}: {item!r} names no patch; patches are {sorted(known)}")
        if key == "hash":
            hashes.add(value)
        elif key == "skip":
            skips.add(value)
        elif item == "version=any":
            any_version = True
        elif key == "platform" and value:
            platform, _, digits = value.partition("/")
            if digits:
                major, _, minor = digits.partition(".")
                capability = (int(major), int(minor))
        else:
            raise ValueError(f"{VARIABLE}: {item!r} is not understood; see twinspark.overrides")
    return Overrides(any_version, frozenset(hashes), frozenset(skips), platform, capability)


def from_environment(known: frozenset[str]) -> Overrides:
    """Overrides of this process; empty when the variable is unset."""
    return parse(os.environ.get(VARIABLE, ""), known)
