"""The recorded fault matrix as Markdown for the guards document: `matrix_table.py [--write]`.

What each fault does to each guard, for each guard what proves it, how often clean runs alarm, and
the detectors over measured corpora.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from twinspark.guards.detectors import DETECTORS
from twinspark.guards.registry import GUARDS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCUMENT = HERE.parents[1] / "docs/quality-guards.md"
BEGIN, END = "<!-- matrix: generated -->\n", "<!-- matrix: end -->\n"
PROOF_BEGIN, PROOF_END = "<!-- proofs: generated -->\n", "<!-- proofs: end -->\n"
# one test of each guard that fails it for its own fault, on files or on the fake server
ELSEWHERE = {
    "identity": "test_identity__fails_outside_a_release",
    "config_match": "test_config_match__fails_for_a_flag_that_overrides_the_file",
    "overlay_applied": "test_overlay_applied__fails_when_one_process_differs",
    "health": "test_health__fails_for_another_model",
    "first_token": "test_first_token__fails_for_an_empty_stream",
    "determinism": "test_determinism__fails_for_noise",
    "recall": "test_recall__fails_for_lost_facts",
    "margin": "test_margin__fails_for_an_answer_that_is_right_but_soft",
    "neighbours": "test_neighbours__fails_in_the_arm_of_the_fault_alone",
    "blocks": "test_blocks__names_the_damaged_block_while_own_answers_stay_right",
    "ladder": "test_ladder__fails_on_the_rung_that_loses_facts",
    "acceptance": "test_acceptance__alarms_on_both_sides",
    "trigger": "test_trigger__fails_for_a_wrong_answer",
    "text": "test_text__fails_for_each_kind_of_damage",
    "structured": "test_structured__fails_for_a_bad_tool_call",
    "puzzle": "test_puzzle__tells_wrong_from_truncated",
    "throughput": "test_throughput__fails_below_its_floor",
    "counters": "test_counters__fails_for_a_corrupted_request",
    "logs": "test_logs__fails_for_a_line_that_must_not_be_there",
}


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


def proofs() -> dict[str, list[str]]:
    """Rows that each guard failed and was expected to fail, on the engine."""
    found: dict[str, list[str]] = {guard.name: [] for guard in GUARDS}
    for path in sorted(RESULTS.glob("fault_matrix_*.json")):
        document = json.loads(path.read_text())
        for row in document["rows"]:
            for name in set(row["failed"]) & set(row["expected"]):
                found[name].append(f"{row['fault']} ({document['nodes']})")
    return found


def proof_table() -> str:
    """Every guard and the faults that it was there to see and saw."""
    lines = ["| guard | on the engine (nodes) | without an engine |", "|---|---|---|"]
    for name, rows_ in proofs().items():
        shown = "; ".join(rows_[:4]) + (f"; {len(rows_) - 4} more" if len(rows_) > 4 else "")
        lines.append(f"| {name} | {shown or '-'} | `{ELSEWHERE[name]}` |")
    return "\n".join(lines) + "\n"


def detector_table() -> str:
    """Alarms of each detector over each measured corpus."""
    corpora = json.loads((RESULTS / "detectors.json").read_text())["corpora"]
    lines = [
        f"| corpus | pieces | {' | '.join(DETECTORS)} | any, at most (95 %) |",
        f"|---|---|{'---|' * len(DETECTORS)}---|",
    ]
    for one in sorted(corpora, key=lambda corpus: corpus["name"]):
        counts = " | ".join(str(one["alarms"][name]) for name in DETECTORS)
        rate = f"{100 * one['rate_at_most']:.1f} %"
        lines.append(f"| {one['name']} ({one['date']}) | {one['pieces']} | {counts} | {rate} |")
    return "\n".join(lines) + "\n"


def clean_table() -> str:
    """What the clean runs of `battery quick` say."""
    path = RESULTS / "clean_runs.json"
    if not path.exists():
        return "No run is recorded.\n"
    body = json.loads(path.read_text())
    one = body["summary"]
    low, high = one["seconds"]
    rate = f"{100 * one['rate_at_most']:.1f} %"
    silent = sum(
        any(name.startswith("throughput") for name in run["no_verdict"]) for run in body["runs"]
    )
    loads = [run["load"] / body["machine_cores"] for run in body["runs"]]
    return (
        f"{one['runs']} runs, {one['false_alarms']} with a false alarm, {one['could_not_run']} "
        f"that could not run: at most {rate} of runs alarm (95 %, one-sided Clopper-Pearson). "
        f"{one['checks_passed']} checks passed; {low:.0f} to {high:.0f} s a run; the engine was "
        f"{one['engine_hours']:.1f} h old at the last. In {silent} of them `throughput` had no "
        f"verdict: {min(loads):.1f} to {max(loads):.1f} running processes a core from other work. "
        f"{body['engine']}.\n"
    )


def splice(text: str, begin: str, end: str, made: str) -> str:
    before, _, rest = text.partition(begin)
    return before + begin + made + end + rest.partition(end)[2]


def spliced(text: str) -> str:
    text = splice(text, BEGIN, END, table())
    text = splice(text, "<!-- clean: generated -->\n", "<!-- clean: end -->\n", clean_table())
    begin, end = "<!-- detectors: generated -->\n", "<!-- detectors: end -->\n"
    text = splice(text, begin, end, detector_table())
    return splice(text, PROOF_BEGIN, PROOF_END, proof_table())


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOCUMENT.write_text(spliced(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
