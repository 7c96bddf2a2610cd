"""`python3 -m twinspark.checkpoint`: this subcommand by itself, for a bare node."""

from __future__ import annotations

import argparse
import sys

from twinspark.checkpoint.cli import __doc__ as description
from twinspark.checkpoint.cli import add_arguments, run


def main() -> int:
    """Parse the command line and run one action; returns the exit status."""
    parser = argparse.ArgumentParser(prog="twinspark checkpoint", description=description)
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
