"""Command-line options that several actions share."""

from __future__ import annotations

import argparse
import re
import shlex

from twinspark.checkpoint import verify


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def one_or_more(text: str) -> int:
    """An argument that counts something.

    Raises:
        argparse.ArgumentTypeError: it is no whole number, or below 1.
    """
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def port(text: str) -> int:
    """An argument that is a TCP port.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number = _whole(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{number} is no port: 1 to 65535")
    return number


def addresses(text: str) -> list[str]:
    """An argument that lists addresses, separated by commas.

    Raises:
        argparse.ArgumentTypeError: it lists none.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names no address")
    return found


def tree_digest(text: str) -> str:
    """An argument that is a SHA-256; returned in lower case, as manifests have it.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    digest = text.lower()
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no SHA-256: 64 hex digits")
    return digest


def program(text: str) -> str:
    """An argument that is a command line with its words quoted as a shell wants them.

    Raises:
        argparse.ArgumentTypeError: it is empty, or a quote is open.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not words:
        raise argparse.ArgumentTypeError("names no program")
    return text


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Options of every action that reads all bytes."""
    parser.add_argument(
        "--workers",
        type=one_or_more,
        default=0,
        metavar="N",
        help="threads (default: two a core, 8 at most)",
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
