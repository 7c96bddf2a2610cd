"""How often does `battery quick` alarm on a server without a fault? Run it many times and count.

    PYTHONPATH=tests python -m guards.clean_runs --engine VENV --model CHECKPOINT --work DIR \\
        --out tests/guards/results/clean_runs.json

VENV holds vLLM's CPU build and the overlay's wheel. Each run is the real command in processes of
its own, on one engine that is not restarted between the runs. A run is written down as it ends:
the same command again goes on counting after an interruption. Truth label: emulated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from guards.real_engine import Engine
from twinspark.guards import report

SCHEMA = "twinspark.clean-runs/1"
CONFIDENCE = 0.95
SEED = 50_000
LIMIT_S = 1800.0  # one battery; quick has five minutes on an idle lab


def bound(alarms: int, runs: int) -> float:
    """One-sided 95 % Clopper-Pearson upper bound of the rate: 1 - 0.05**(1/n) for none in n."""
    if alarms >= runs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        upto = math.fsum(
            math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(alarms + 1)
        )
        low, high = (rate, high) if upto > 1 - CONFIDENCE else (low, rate)
    return high


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, and what they say about the rate."""
    alarms = sum(run["status"] == 1 for run in runs)
    verdicts = [check for run in runs for check in run["passed"]]
    return {
        "runs": len(runs),
        "false_alarms": alarms,
        "could_not_run": sum(run["status"] not in {0, 1} for run in runs),
        "rate_at_most": round(bound(alarms, len(runs)), 4) if runs else 1.0,
        "confidence": CONFIDENCE,
        "checks_passed": len(verdicts),
        "seconds": [min(r["seconds"] for r in runs), max(r["seconds"] for r in runs)],
        "engine_hours": max(run["uptime_h"] for run in runs),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """Runs recorded so far."""
    return json.loads(path.read_text())["runs"] if path.exists() else []


def write(path: Path, runs: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Replace the record in one step."""
    body = {"schema": SCHEMA, "label": "emulated", **about, "summary": summary(runs), "runs": runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    part.replace(path)


def one(engine: Engine, number: int, state: Path, started: float) -> dict[str, Any]:
    """One battery, as a person would start it."""
    made = engine.work / "report.json"
    made.unlink(missing_ok=True)
    words = ["battery", "quick", "--wait", "--etc", engine.etc(0), "--state", state]
    words += ["--json", made, "--seed", str(SEED + 1000 * number)]
    env = os.environ | {"PATH": f"{engine.tools()}:{os.environ['PATH']}"}
    load, began = os.getloadavg()[0], time.time()
    done = subprocess.run(
        [engine.venv / "bin/twinspark", *words], env=env, capture_output=True, text=True,
        check=False, timeout=LIMIT_S,
    )  # fmt: skip
    seconds = round(time.time() - began, 1)
    checks = report.read(made).every() if made.exists() else []
    return {
        "run": number, "time": time.strftime("%F %T", time.localtime(began)), "seconds": seconds,
        "status": done.returncode, "uptime_h": round((began - started) / 3600, 2), "load": load,
        "passed": [check.name for check in checks if check.ok],
        "no_verdict": {c.name: c.kind for c in checks if c.ok is None},
        "failed": [
            {"name": c.name, "kind": c.kind, "expected": c.expected, "actual": c.actual,
             "detail": c.detail.replace(str(engine.work), "WORK")} for c in checks if c.ok is False
        ],
        **({} if checks else {"said": (done.stdout + done.stderr)[-500:]}),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=Path, required=True, help="venv with vLLM CPU and overlay")
    parser.add_argument("--model", type=Path, required=True, help="recall checkpoint with oracle")
    parser.add_argument("--work", type=Path, required=True, help="folder of configuration and logs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--port", type=int, default=8471)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that `finally` stops the engine
    about = {
        "engine": "vLLM 0.27.1 CPU build, one node, ngram drafts", "machine_cores": os.cpu_count(),
        "command": "PYTHONPATH=tests python -m guards.clean_runs --engine VENV --model CHECKPOINT "
        f"--work DIR --out FILE --runs {options.runs}",
    }  # fmt: skip
    runs = read(options.out)
    engine = Engine(
        options.engine.resolve(), options.model.resolve(), options.work.resolve(), faults=False,
        port=options.port, step_tokens=4096,
    )  # fmt: skip
    try:
        engine.start()
        started = time.time()
        while len(runs) < options.runs:
            run = one(engine, len(runs), engine.work / "state", started)
            if not engine.alive():
                raise SystemExit(f"the engine has ended, run not counted: see {engine.log(0)}")
            runs.append(run)
            write(options.out, runs, about)
            failed = ", ".join(c["name"] for c in run["failed"]) or "-"
            print(f"{run['run']:3d} status {run['status']} {run['seconds']} s {failed}", flush=True)
    finally:
        engine.stop()
    return 0 if not summary(runs)["false_alarms"] else 1


if __name__ == "__main__":
    sys.exit(main())
