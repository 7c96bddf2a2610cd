"""Judge recordings on any machine: `python3 -m twinspark.host judge spark1=FILE spark2=FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.host.ansible import judged

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "recordings", nargs="+", metavar="NODE=FILE", help="what record.py printed on a node"
    )
    parser.add_argument("--only", default="", help="checks or groups, with commas between")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the report: 0 nothing wrong, 1 something is, 2 a node was asked in vain.

    Raises:
        OSError: A recording cannot be read.
        ValueError: It is none, an argument is not NODE=FILE, or no check is called so.
    """
    texts = {}
    for one in args.recordings:
        name, given, path = one.partition("=")
        if not (name and given):
            raise ValueError(f"{one!r} is not NODE=FILE")
        texts[name] = Path(path).read_text(encoding="utf-8", errors="replace")
    only = tuple(one for one in args.only.split(",") if one)
    result = judged(texts, only, (), ())
    print(json.dumps(result["verdicts"], indent=1) if args.json else result["table"])
    if any(result["wrong"].values()):
        return 1
    return 2 if any(result["unanswered"].values()) or not result["verdicts"] else 0
