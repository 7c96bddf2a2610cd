#!/usr/bin/env python3
"""One program under many names: each link beside it is a program that only a Spark has.

`twinspark-fake set FAULT...|clear|list|show` throws the switches, `burn SECONDS` loads the GPU. A
question that is not about a Spark goes
to the real program of that name.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from _spark import programs  # noqa: E402
from _spark import state as store  # noqa: E402
from _spark.faults import FAULTS  # noqa: E402


def burn(seconds: float) -> int:
    """Load the fake GPU for a while: meanwhile nvidia-smi shows the clocks of a load."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    store.write("burn.json", {"on": True})
    try:
        time.sleep(seconds)
    finally:
        store.write("burn.json", {})
    return 0


def switch(words: list[str]) -> int:
    """Throw switches and plant the files that follow from them."""
    switches = store.read("switches.json")
    match words:
        case ["list"]:
            for name, fault in FAULTS.items():
                print(f"{name:28} S{fault.row:02}  {fault.title}")
            return 0
        case ["set", *names] if names and not set(names) - FAULTS.keys():
            switches["faults"] = sorted({*switches.get("faults", []), *names})
        case ["clear"]:
            switches.pop("faults", None)
        case ["show"]:
            print(switches)
            return 0
        case ["burn", seconds]:
            return burn(float(seconds))
        case _:
            print(
                "usage: twinspark-fake list | set FAULT... | clear | show | burn SECONDS",
                file=sys.stderr,
            )
            return 2
    store.write("switches.json", switches)
    programs.plant(programs.spark_files(), store.folder() / "root")
    return 0


def pass_on(name: str, argv: list[str]) -> int:
    """Become the real program of this name, if there is one."""
    folders = [
        one for one in os.environ.get("PATH", os.defpath).split(":") if Path(one).resolve() != HERE
    ]
    real = shutil.which(name, path=":".join(folders))
    if real is None:
        print(f"{name}: not found", file=sys.stderr)
        return 127
    os.execv(real, [name, *argv])  # noqa: S606 (it becomes that program)
    return 0  # not reached


def main() -> int:
    """Answer as the program whose name we were called by."""
    name = Path(sys.argv[0]).name
    if name == "twinspark-fake":
        return switch(sys.argv[1:])
    state = programs.current()
    if not (store.folder() / "root").exists():
        programs.plant(programs.spark_files(), store.folder() / "root")
    answer = programs.PROGRAMS[name](state, sys.argv[1:])
    if answer is None:
        return pass_on(name, sys.argv[1:])
    sys.stdout.write(answer[1])
    sys.stderr.write(answer[2])
    return answer[0]


if __name__ == "__main__":
    sys.exit(main())
