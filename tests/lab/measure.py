"""What a deployment costs on the converged lab, beside a play that does nothing.

    python tests/lab/measure.py --out FILE.json [--runs 5] [--warm LOG] [--cold LOG]

The unit is seconds a host-task (one task on one node) of ten pings with the same forks: all that
Ansible, ssh and Python cost anyway. LOG is what `./run up` printed on a new lab, with a full cache
(warm) or an empty one (cold). Truth label of the result: emulated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lab.nodes import SCRIPT, Lab
from lab.play import ROOT, words

PINGS: Final = 10
_HEAD: Final = re.compile(r"(PLAY|TASK|RUNNING HANDLER) \[(?:(\S+) : )?(.*?)\] \*")
_RECAP: Final = re.compile(r"ok=(\d+)\s+changed=(\d+).*?failed=(\d+)\s+skipped=(\d+)")
_CLOCK: Final = re.compile(r"^\[\s*(\d+):(\d+)\] report", re.MULTILINE)


def played(lab: Lab, playbook: str) -> dict[str, Any]:
    """Play once: wall seconds, host-tasks, changes, and the seconds of each role."""
    began = time.monotonic()
    spent: defaultdict[str, float] = defaultdict(float)
    mark, place, tasks, changed = began, "start", 0, 0
    command = [str(SCRIPT), *words(lab, playbook)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as playing:
        assert playing.stdout is not None
        for line in playing.stdout:
            now = time.monotonic()
            if head := _HEAD.match(line):
                spent[place] += now - mark
                mark = now
                place = "facts" if head[3] == "Gathering Facts" else head[2] or head[3]
            if recap := _RECAP.search(line):
                ok, was_changed, failed, skipped = map(int, recap.groups())
                assert not failed, line
                tasks += ok + skipped
                changed += was_changed
    assert playing.returncode == 0, playbook
    spent[place] += time.monotonic() - mark
    wall = time.monotonic() - began
    return {
        "wall_s": wall,
        "host_tasks": tasks,
        "changed": changed,
        "s_per_host_task": wall / tasks,
        "by_role_s": dict(sorted(spent.items(), key=lambda one: -one[1])),
    }


def ping_play(folder: Path) -> Path:
    """A play of ten pings on both nodes."""
    path = folder / "pings.yml"
    tasks = [{"name": f"Ping {number}", "ansible.builtin.ping": {}} for number in range(PINGS)]
    play = [
        {"name": "Pings", "hosts": "sparks", "become": True, "gather_facts": False, "tasks": tasks}
    ]
    path.write_text(json.dumps(play), encoding="utf-8")
    return path


def log_seconds(path: Path | None) -> int | None:
    """When `./run up` had its report, from its own clock."""
    if path is None:
        return None
    found = _CLOCK.findall(path.read_text(encoding="utf-8"))
    assert found, f"{path} does not end with a report"
    return int(found[-1][0]) * 60 + int(found[-1][1])


def median(runs: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Median and all values."""
    values = [round(float(run[key]), 4) for run in runs]
    return {"median": statistics.median(values), "values": values}


def main() -> int:
    """Measure in turns, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm", type=Path)
    parser.add_argument("--cold", type=Path)
    args = parser.parse_args()
    lab, site, pings = Lab(), [], []
    play = ping_play(args.out.parent)
    for turn in range(args.runs):
        pings.append(played(lab, str(play)))
        site.append(played(lab, "site.yml"))
        print(
            f"{turn + 1}: site.yml {site[-1]['wall_s']:.0f} s, pings {pings[-1]['wall_s']:.1f} s",
            flush=True,
        )
    play.unlink()
    ratios = [
        one["s_per_host_task"] / other["s_per_host_task"]
        for one, other in zip(site, pings, strict=True)
    ]
    roles = {
        name: statistics.median(run["by_role_s"].get(name, 0.0) for run in site)
        for name in site[0]["by_role_s"]
    }
    noop = statistics.median(run["wall_s"] for run in site)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    result = {
        "schema": "twinspark.bench/1",
        "benchmark": "what a deployment costs",
        "provenance": {
            "label": "emulated",
            "date": datetime.now(UTC).date().isoformat(),
            "command": "python tests/lab/measure.py "
            + " ".join(f"--{k}" for k in ("out", "warm", "cold")),
            "commit": commit.stdout.strip(),
            "cores": len(os.sched_getaffinity(0)),
            "load_before": list(
                map(float, Path("/proc/loadavg").read_text(encoding="ascii").split()[:3])
            ),
        },
        "n": args.runs,
        "changed": max(run["changed"] for run in site),
        "host_tasks": site[0]["host_tasks"],
        "noop_site_s": median(site, "wall_s"),
        "s_per_host_task": {
            "site": median(site, "s_per_host_task"),
            "pings": median(pings, "s_per_host_task"),
        },
        "ratio_to_pings": {
            "median": round(statistics.median(ratios), 3),
            "values": [round(one, 3) for one in ratios],
        },
        "share_by_role": {name: round(spent / noop, 3) for name, spent in list(roles.items())[:8]},
    }
    for name in ("warm", "cold"):
        if (seconds := log_seconds(getattr(args, name))) is not None:
            result[f"{name}_up_to_noop_site"] = round(seconds / noop, 2)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
