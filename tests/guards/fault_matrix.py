"""Which guard sees which fault, on the real CPU engine: starts it, damages it, runs the guards.

    PYTHONPATH=tests VENV/bin/python -m guards.fault_matrix --engine VENV --model CHECKPOINT \\
        --work DIR --out tests/guards/results/fault_matrix_1.json [--nodes 2] [--rows WORDS]

VENV holds vLLM's CPU build and the overlay's wheel; the fault plugin reaches the engine through
PYTHONPATH alone, nothing more is installed. With `--rows` the other rows of FILE stay as they are.
Truth label of the result: emulated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guards.fault_rows import DEPTH, ROWS, Row
from guards.real_engine import Engine
from twinspark.guards import cli, runner, state
from twinspark.guards.registry import chosen

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.model import Check

EARLIER = 3  # runs that the throughput guard wants before it takes its floor from them


def fits(row: Row, failed: list[str]) -> bool:
    """What had to fail did; without an expected failure nothing may."""
    return set(row.expected) <= set(failed) if row.expected else not failed


def judge(row: Row, checks: list[Check], health: str) -> dict[str, Any]:
    failed = sorted({check.name.partition(".")[0] for check in checks if check.ok is False})
    return {
        "fault": row.name, "switch": row.fault, "expected": list(row.expected), "failed": failed,
        "as_expected": fits(row, failed), "date": time.strftime("%F"),
        "health_endpoint": health,
        "checks": [
            {"name": c.name, "kind": c.kind, "actual": c.actual, "detail": c.detail[:160]}
            for c in checks
        ],
    }  # fmt: skip


def given(row: Row, engine: Engine, seed: int) -> Context:
    """The context of a row's guards, as `twinspark battery quick` would make it."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    words = ["--etc", str(engine.etc(0)), "--seed", str(seed), "--timeout", str(row.timeout)]
    context = cli.make_context(parser.parse_args(words), "quick")
    return replace(context, state=None, depth=DEPTH)


def run_guards(context: Context, names: tuple[str, ...]) -> list[Check]:
    return [c for guard in chosen("quick", list(names), []) for c in runner.run_one(guard, context)]


def with_history(context: Context, row: Row, engine: Engine) -> Context:
    """A few runs without the fault first, so that floors come from them."""
    folder = engine.work / "history"
    for number in range(EARLIER):
        checks = run_guards(replace(context, seed=context.seed + number + 1), row.guards)
        report = runner.node_report(context, cli.label(context.system), checks)
        state.record(report, folder, whole=False)
    return replace(context, state=folder)


def run_row(row: Row, engine: Engine, seed: int) -> dict[str, Any]:
    engine.switch({})
    if engine.health() == "200":
        engine.wait_idle()
    context = given(row, engine, seed)
    if row.history:
        context = with_history(context, row, engine)
    undo = row.act(engine) if row.act else None
    engine.switch(row.fault)
    health = engine.health()
    try:
        # read again where the act has rendered something else
        context = replace(given(row, engine, seed), state=context.state)
        result = judge(row, run_guards(context, row.guards), health)
    finally:
        if undo:
            undo()
    word = "as expected" if result["as_expected"] else "NOT AS EXPECTED"
    failed = ", ".join(result["failed"]) or "-"
    print(f"{row.name:42s} {word:16s} /health {health}, failed: {failed}", flush=True)
    return result


def write(path: Path, results: dict[str, dict[str, Any]], nodes: int) -> None:
    """All rows in their order, judged by what is expected now; rows that are gone are dropped."""
    rows = [
        results[row.name]
        | {"expected": list(row.expected), "as_expected": fits(row, results[row.name]["failed"])}
        for row in ROWS[nodes]
        if row.name in results
    ]
    good = sum(row["as_expected"] for row in rows)
    written = {
        "schema": "twinspark.fault-matrix/1", "label": "emulated",
        "engine": "vLLM 0.27.1 CPU build", "nodes": nodes,
        "as_expected": f"{good} of {len(rows)}",
        "command": "PYTHONPATH=tests VENV/bin/python -m guards.fault_matrix --engine VENV "
        f"--model CHECKPOINT --work DIR --out FILE --nodes {nodes}",
        "rows": rows,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")


def recorded(path: Path) -> dict[str, dict[str, Any]]:
    """Rows that an earlier run has left."""
    if not path.exists():
        return {}
    body = json.loads(path.read_text())
    return {row["fault"]: {"date": body.get("date"), **row} for row in body["rows"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=Path, required=True, help="venv with vLLM CPU and overlay")
    parser.add_argument("--model", type=Path, required=True, help="recall checkpoint with oracle")
    parser.add_argument("--work", type=Path, required=True, help="folder of configuration and logs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1, choices=[1, 2])
    parser.add_argument("--rows", default="", help="only rows with one of these, a|b")
    parser.add_argument("--port", type=int, default=8461)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that `finally` stops the engine
    wanted = options.rows.split("|")
    rows = [row for row in ROWS[options.nodes] if any(word in row.name for word in wanted)]
    results = recorded(options.out)
    engine = Engine(
        options.engine.resolve(), options.model.resolve(), options.work.resolve(), options.nodes,
        port=options.port, env={"VLLM_COMPUTE_NANS_IN_LOGITS": "1"},
    )  # fmt: skip
    path = os.environ["PATH"]
    try:
        for row in rows:
            if not engine.children:
                engine.start()
                os.environ["PATH"] = f"{engine.tools()}:{path}"
            seed = 10_000 + 1000 * ROWS[options.nodes].index(row)
            made = json.dumps(run_row(row, engine, seed)).replace(str(engine.work), "WORK")
            results[row.name] = json.loads(made)  # no paths of this machine
            write(options.out, results, options.nodes)
            if row.restart:
                engine.stop()
                engine.children.clear()
    finally:
        engine.stop()
    return 0 if all(results[row.name]["as_expected"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
