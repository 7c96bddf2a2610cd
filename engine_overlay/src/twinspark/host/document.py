"""Print docs/symptoms.md: the table of symptoms, with the check or part that looks for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.host.checks import CHECKS
from twinspark.host.symptoms import SYMPTOMS

if TYPE_CHECKING:
    import argparse

HEAD = """# Symptoms

<!-- generated: .venv/bin/python -m twinspark.host symptoms --write docs/symptoms.md -->

What owners of two-Spark pairs have met: symptom, cause, what to do, where it is known from, and
what looks for
it here. The causes and figures are the field's, quoted with their source; this project has no
Spark and has
reproduced none of them on one. `playbooks/diagnose.yml` asks both nodes, read-only, and names the
row.

Checks are tested against fakes of the nodes' programs (`tests/fakes`, `tests/host`): for each
fault there,
exactly its own check fails (emulated). S01 to S48 are owners' problems, from S49 on facts about
the hardware.

| # | symptom | cause | what to do | source | looked for by |
|---|---|---|---|---|---|
"""


def cell(text: str) -> str:
    """Return text that cannot break a table."""
    return " ".join(text.split()).replace("|", "\\|")


def looker(row: int) -> str:
    """Return who looks for a row."""
    checks = [f"`{one.id}`" for one in CHECKS if one.row == row or (row == 11 and one.row == 10)]
    return ", ".join(checks) or SYMPTOMS[row].elsewhere or "nobody yet"


def render() -> str:
    """Return the document."""
    rows = [
        f"| S{row:02} | {' | '.join(cell(text) for text in (*known[:4], looker(row)))} |"
        for row, known in SYMPTOMS.items()
    ]
    return HEAD + "\n".join(rows) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--write", type=Path, help="write the document there")


def run(args: argparse.Namespace) -> int:
    """Print or write the document."""
    if args.write is None:
        print(render(), end="")
    else:
        args.write.write_text(render(), encoding="utf-8")
    return 0
