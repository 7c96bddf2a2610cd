"""The fault matrix as a program: rows name guards that exist, partial runs keep the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from guards.fault_matrix import judge, recorded, write
from guards.fault_rows import ROWS, Row
from twinspark.guards.model import verdict
from twinspark.guards.registry import GUARDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("nodes", sorted(ROWS))
def test_rows__expect_of_guards_that_run(nodes: int) -> None:
    names = [row.name for row in ROWS[nodes]]
    assert len(set(names)) == len(names)
    known = {guard.name for guard in GUARDS}
    for row in ROWS[nodes]:
        assert set(row.expected) <= set(row.guards) <= known, row.name


@pytest.mark.parametrize(
    ("expected", "failing", "good"),
    [((), (), True), ((), ("text",), False), (("text",), (), False), (("text",), ("text",), True)],
)
def test_judge__wants_the_expected_failures_and_no_alarm_without_a_fault(
    expected: tuple[str, ...], failing: tuple[str, ...], good: bool
) -> None:
    checks = [verdict("text.copies", "n", "text" not in failing, "a", "b")]
    made = judge(Row("x", {}, expected), checks, "200")
    assert (made["as_expected"], made["failed"]) == (good, list(failing))


def test_write__keeps_rows_of_earlier_runs_in_order_and_drops_unknown_ones(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    first, second = (row.name for row in ROWS[2][:2])
    old = {"fault": second, "failed": list(ROWS[2][1].expected), "as_expected": False}
    path.write_text(json.dumps({"date": "2026-11-01", "rows": [old, {"fault": "no longer"}]}))
    alarm = {"fault": first, "failed": ["text"], "as_expected": True}  # a row without a fault
    results = recorded(path) | {first: alarm}
    write(path, results, 2)
    body = json.loads(path.read_text())
    assert [row["fault"] for row in body["rows"]] == [first, second]
    assert body["rows"][1]["date"] == "2026-11-01"
    assert body["as_expected"] == "1 of 2"
