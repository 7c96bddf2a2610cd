"""Variants, checkpoint, overlay and guards of a pair of DGX Spark nodes."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# One subcommand a package, each imported only when it is asked for:
# name -> (module with `add_arguments(parser)` and `run(args) -> exit status`, help line)
COMMANDS: dict[str, tuple[str, str]] = {
    "variant": ("twinspark.variant.cli", "check, render, compare and plan a variant's env file"),
    "checkpoint": ("twinspark.checkpoint.cli", "inspect, verify, fetch and copy the model's files"),
    "overlay": ("twinspark.overlay_cli", "list the patches, show what each process holds"),
    "guard": ("twinspark.guards.cli", "check that the running server's answers are right"),
    "battery": ("twinspark.guards.battery_cli", "run the guards in depth, detached"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: Arguments without the program name; `sys.argv[1:]` when omitted.

    Returns:
        Exit status: 0 as wished, 1 checked and found wrong, 2 could not run.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="twinspark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    runner = None
    for name, (module, line) in COMMANDS.items():
        command = commands.add_parser(name, help=line, description=line)
        if name == asked:
            loaded = import_module(module)
            loaded.add_arguments(command)
            runner = loaded.run
    args = parser.parse_args(arguments)
    if runner is None:  # unreachable: argparse has refused an unknown command
        parser.error("no command")
    return int(runner(args))
