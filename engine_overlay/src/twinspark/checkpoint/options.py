"""Command-line options that several actions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinspark.checkpoint import verify

if TYPE_CHECKING:
    import argparse


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Options of every action that reads all bytes."""
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="threads (default: two a core)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--beside-engine",
        action="store_true",
        help="go on although an engine is up on this machine",
    )


def options_of(args: argparse.Namespace) -> verify.Options:
    """The options that `add_work_options` declared."""
    return verify.Options(
        workers=args.workers,
        quiet=args.quiet,
        beside_engine=args.beside_engine,
        stamp=not getattr(args, "no_stamp", False),
    )
