"""What the overlay adds to the API server's start: plugin on minus plugin off, median of n.

Each run is a fresh process that does what `vllm serve` does up to the engine's configuration: it
imports the serve command and builds its parser, where vLLM loads the plugins.

    python engine_overlay/benchmarks/overlay_load_time.py --python VENV/bin/python --output FILE

The environment must have vLLM 0.27.1 (or its CPU build) and `twinspark` installed; without
`--python` the stock wheel's files of tests/overlay are used.
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from overlay import engine  # noqa: E402 - found through the line above

SERVE = """
import sys, time, types
for name in ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch"):
    if {stub}:
        sys.modules[name] = types.ModuleType(name)
started = time.perf_counter()
import vllm.entrypoints.cli.serve
imported = time.perf_counter()
from vllm.plugins import load_general_plugins
load_general_plugins()
print("MEASURED", imported - started, time.perf_counter() - imported)
"""


def entry_point(folder: Path) -> None:
    """Make the tree's `twinspark` look installed: its entry point, nothing else."""
    info = folder / "twinspark-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twinspark\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ntwinspark = twinspark.plugin:register\n"
    )


def once(python: Path, env: dict[str, str], code: str) -> tuple[float, float]:
    """Seconds of import and of plugin load in one fresh process."""
    done = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=600
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("MEASURED")), None)
    if line is None:
        raise SystemExit(f"no measurement:\n{done.stderr[-2000:]}")
    _, imported, loaded = line.split()
    return float(imported), float(loaded)


def main() -> None:
    """Alternate the two arms and write medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = engine.environment() if options.python is None else dict(os.environ)
        if options.python is None:
            entry_point(Path(folder))
            env["PYTHONPATH"] += os.pathsep + folder
            env["TWINSPARK_OVERLAY_OVERRIDE"] = "platform=cuda/12.1"  # arms every patch
        python = options.python or engine.python()
        code = SERVE.format(stub=options.python is None)
        found: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
        for _ in range(options.runs):
            found["off"].append(once(python, env | {"VLLM_PLUGINS": ""}, code))
            found["on"].append(once(python, {k: v for k, v in env.items() if k != "VLLM_PLUGINS"},
                                    code))  # fmt: skip
    loads = {arm: [loaded for _, loaded in runs] for arm, runs in found.items()}
    medians = {arm: statistics.median(values) for arm, values in loads.items()}
    document = {
        "what": "seconds that loading the plugins takes in the API server",
        "label": "emulated",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python engine_overlay/benchmarks/overlay_load_time.py --output FILE",
        "n": options.runs,
        "machine": f"{os.cpu_count()} CPUs {platform.machine()}, load {os.getloadavg()[0]:.1f}",
        "import_s_median": statistics.median(i for i, _ in found["off"] + found["on"]),
        "load_s": loads,
        "load_s_median": medians,
        "added_s": medians["on"] - medians["off"],
        "limit_s": 1.0,
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"added {document['added_s']:.3f} s (limit 1 s)")


if __name__ == "__main__":
    main()
