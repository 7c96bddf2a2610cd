"""Bytes of C128A decode rows written per step: this overlay's #13 against the full-width fix.

Counted, not timed: the real builder runs over a poisoned buffer in Triton's interpreter, and what
is no longer poison has been written. Needs the environment of `tests/overlay` (./run test).

    python engine_overlay/benchmarks/overlay_written_bytes.py --output FILE.json
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from overlay.engine import Engine  # noqa: E402 - found through the line above
from twinspark.patches.graphs.c128a_stride import written_bytes  # noqa: E402 - as above

SCENARIOS = REPOSITORY / "tests/overlay/graphs/test_13_c128a_stride.py"
CONTEXTS = {"2K": 2_048, "64K": 65_536, "1M": 1_048_570}
ROWS = 6  # one request's anchor and five drafts
WIDTH = 8192  # entries of a buffer row at max_model_len 1,048,576


def counted(engine: Engine, context: int) -> int:
    """Bytes that one step of one request writes, counted in the buffer."""
    scope: dict[str, object] = {"__file__": str(SCENARIOS), "__name__": "scenarios"}
    exec(compile(SCENARIOS.read_text(), str(SCENARIOS), "exec"), scope)  # noqa: S102 - our own tests
    return int(engine.run(scope["scenario_written"], context - ROWS)) * 4


def main() -> None:
    """Count, compare with the formula, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    engine = Engine(overlay=True, TWINSPARK_OVERLAY_OVERRIDE="platform=cuda/12.1")
    rows = []
    for name, context in CONTEXTS.items():
        found = counted(engine, context)
        expected = written_bytes(ROWS, context, WIDTH)
        if found != expected["narrow"]:
            raise SystemExit(f"{name}: counted {found} B, the formula says {expected['narrow']} B")
        full = expected["full_width"]
        rows.append({"context": name, "tokens": context, "decode_rows": ROWS,
                     "bytes_this_overlay": found, "bytes_full_width": full,
                     "ratio": round(full / found, 2)})  # fmt: skip
    engine.stop()
    document = {
        "what": "bytes of C128A decode index rows written per step and builder",
        "label": "emulated",
        "how": "counted in the buffer after the real builder's kernel (Triton interpreter, CPU)",
        "date": time.strftime("%Y-%m-%d"),
        "command": "python engine_overlay/benchmarks/overlay_written_bytes.py --output FILE",
        "n": 1,
        "max_model_len": 1_048_576,
        "rows": rows,
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
