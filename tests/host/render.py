"""Render one of the project's templates without Ansible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

ROOT = Path(__file__).parents[2]


def render(template: str, **values: Any) -> str:
    """Render `templates/<template>`; an unknown variable is an error."""
    environment = jinja2.Environment(  # noqa: S701 (configuration files, no HTML)
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["comment"] = lambda text: f"# {text}"
    text = (ROOT / "templates" / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(ansible_managed="managed", **values)


def lines(text: str) -> set[str]:
    """Return the lines that are no comment."""
    return {line for line in text.splitlines() if line and not line.startswith("#")}
