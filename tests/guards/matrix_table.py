"""The recorded fault matrix as Markdown for the guards document: `matrix_table.py [--write]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCUMENT = HERE.parents[1] / "docs/quality-guards.md"
BEGIN, END = "<!-- matrix: generated -->\n", "<!-- matrix: end -->\n"


def rows(document: dict[str, Any]) -> list[str]:
    lines = []
    for row in document["rows"]:
        seen = ", ".join(row["failed"]) or "none"
        passed = {
            check["name"].partition(".")[0] for check in row["checks"] if check["kind"] == "pass"
        }
        quiet = ", ".join(sorted(passed - set(row["failed"]))) or "none"
        word = "yes" if row["as_expected"] else "**no**"
        lines.append(f"| {document['nodes']} | {row['fault']} | {seen} | {quiet} | {word} |")
    return lines


def table() -> str:
    documents = [
        json.loads(path.read_text()) for path in sorted(RESULTS.glob("fault_matrix_*.json"))
    ]
    head = ["| nodes | fault | fail | pass | as expected |", "|---|---|---|---|---|"]
    body = [line for document in documents for line in rows(document)]
    return "\n".join([*head, *body]) + "\n"


def spliced(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOCUMENT.write_text(spliced(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
