"""Shipped variants with a few lines changed, as an operator would change them."""

from __future__ import annotations

from pathlib import Path

ENV = Path(__file__).parents[2] / "env"
SHIPPED = sorted(ENV.glob("*.env"))


def edited(name: str, **changes: str | None) -> str:
    """Text of a shipped file with lines changed (a value), removed (None) or added at the end."""
    lines = []
    for line in (ENV / f"{name}.env").read_text().splitlines():
        key = line.partition("=")[0]
        if key not in changes:
            lines.append(line)
        elif (value := changes.pop(key)) is not None:
            lines.append(f"{key}={value}")
    lines += [f"{key}={value}" for key, value in changes.items()]
    return "\n".join(lines) + "\n"


def line_of(text: str, key: str) -> int:
    """Number of the line that sets a key."""
    lines = [line.partition("=")[0] for line in text.splitlines()]
    return lines.index(key) + 1
