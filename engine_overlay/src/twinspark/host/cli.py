"""Judge recordings on any machine: `python3 -m twinspark.host judge spark1=FILE spark2=FILE`."""

from __future__ import annotations

import json
import sys
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
    """Print the report: 0 nothing wrong, 1 something is, 2 a recording cannot be read."""
    try:
        pairs = dict(one.split("=", 1) for one in args.recordings)
        texts = {name: Path(path).read_text(encoding="utf-8") for name, path in pairs.items()}
        only = tuple(one for one in args.only.split(",") if one)
        result = judged(texts, only, (), ())
    except (OSError, ValueError) as error:
        print(f"twinspark.host judge: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result["verdicts"], indent=1) if args.json else result["table"])
    if not result["verdicts"]:
        return 2
    return 1 if any(result["wrong"].values()) else 0
