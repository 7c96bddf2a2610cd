"""`python3 -m twinspark.host COMMAND`: the host layer's tools; standard library only."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "judge": ("twinspark.host.cli", "judge recordings that nodes made"),
    "symptoms": ("twinspark.host.document", "print the symptom table"),
    "toolkit": ("twinspark.host.toolkit", "compile with a CUDA toolkit and look at what came out"),
    "clock": ("twinspark.host.clock", "read the GPU's clock under load"),
    "warm": ("twinspark.host.warm", "compile kernels before the first request"),
    "ready": ("twinspark.host.ready", "wait until the engine answers, and tell what it does"),
    "memory": ("twinspark.host.memory", "let an engine start only when its memory is free"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 as wished, 1 checked and wrong, 2 could not run."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="twinspark.host", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((word for word in words if not word.startswith("-")), None)
    runner = None
    for name, (module, line) in COMMANDS.items():
        command = commands.add_parser(name, help=line, description=line)
        if name == asked:
            loaded = import_module(module)
            loaded.add_arguments(command)
            runner = loaded.run
    args = parser.parse_args(words)
    if runner is None:  # unreachable: argparse has refused an unknown command
        parser.error("no command")
    try:
        return int(runner(args))
    except (OSError, ValueError) as error:
        print(f"twinspark.host {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
