"""Inspect, verify, fetch and copy the model's files."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.checkpoint import identity, stamp, verify
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, read, require_directory
from twinspark.checkpoint.options import add_work_options, options_of, tree_digest

if TYPE_CHECKING:
    import argparse

# Actions whose code is imported only when they are asked for: module with `add_arguments` and
# `run`.
LATER = {
    "fetch": (
        "twinspark.checkpoint.fetch",
        "bring the checkpoint onto this node, from the Hub or a directory",
    ),
    "copy": (
        "twinspark.checkpoint.copying",
        "copy a verified checkpoint to the other node over the rails",
    ),
    "serve": ("twinspark.checkpoint.sender", "offer a verified checkpoint to one `pull`"),
    "pull": ("twinspark.checkpoint.receiver", "take the checkpoint that the other node serves"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    one = actions.add_parser("inspect", help="say what a checkpoint is, and on which evidence")
    one.add_argument("directory", type=Path)
    one.add_argument(
        "--expect",
        choices=identity.KINDS,
        metavar="KIND",
        help=f"exit 1 unless it is this: {', '.join(identity.KINDS)}",
    )
    one.add_argument("--json", action="store_true", help="print one JSON object")
    one = actions.add_parser("manifest", help="hash every file and write manifest.json")
    one.add_argument("directory", type=Path)
    one.add_argument("--force", action="store_true", help="replace the manifest that is there")
    add_work_options(one)
    one = actions.add_parser("verify", help="hold every byte against the manifest; leave a stamp")
    one.add_argument("directory", type=Path)
    one.add_argument(
        "--manifest", type=Path, metavar="FILE", help="instead of its own manifest.json"
    )
    one.add_argument(
        "--expect-tree",
        type=tree_digest,
        metavar="SHA256",
        help="the tree digest that it must have",
    )
    one.add_argument(
        "--stamp-only",
        action="store_true",
        help="only check that these files were verified and have not changed since",
    )
    one.add_argument(
        "--no-stamp", action="store_true", help="leave no stamp, as on a read-only mount"
    )
    add_work_options(one)
    for name, (module, line) in LATER.items():
        one = actions.add_parser(name, help=line, description=line)
        import_module(module).add_arguments(one)


def run(args: argparse.Namespace) -> int:
    """Run one action.

    Returns:
        0 as wished, 1 checked and found wrong, 2 could not run.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may hold what the terminal cannot print
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if args.action in LATER:
            return int(import_module(LATER[args.action][0]).run(args))
        return {"inspect": _inspect, "manifest": _manifest, "verify": _verify}[args.action](args)
    except CheckpointError as error:
        print(f"twinspark checkpoint: {error}", file=sys.stderr)
        return 1
    except CannotRunError as error:
        print(f"twinspark checkpoint: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # whatever was not foreseen where it happened
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"twinspark checkpoint: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("twinspark checkpoint: interrupted; run it again to go on", file=sys.stderr)
        return 2


def _inspect(args: argparse.Namespace) -> int:
    found = identity.inspect(args.directory)
    wrong = list(found.problems)
    if args.expect and found.kind != args.expect:
        wrong.append(
            f"{args.directory} is {found.kind} by its {found.basis}, expected {args.expect}"
        )
    if args.json:
        schema = {"schema": "twinspark.checkpoint-inspection/1"}
        print(json.dumps(schema | asdict(found) | {"problems": wrong}, indent=1))
        return int(bool(wrong))
    print(f"{args.directory}: {found.kind}, by {found.basis}; {found.architecture!r}")
    for item in found.evidence:
        print(f"  {item.basis}: {item.text}")
    for dtype, count in sorted(found.dtypes.items(), key=lambda pair: -pair[1]):
        print(f"  {dtype}: {count} bytes")
    for problem in wrong:
        print(f"WRONG: {problem}", file=sys.stderr)
    return int(bool(wrong))


def _manifest(args: argparse.Namespace) -> int:
    require_directory(args.directory)
    path = args.directory / MANIFEST_NAME
    if path.exists() and not args.force:
        raise CannotRunError(f"{path} exists: verify against it, or say --force to replace it")
    # nothing is taken away first: a refusal must leave all as it was
    options = replace(options_of(args), anew=True)
    return _report(args, verify.verify(args.directory, options))


def _verify(args: argparse.Namespace) -> int:
    if args.stamp_only:
        seen = stamp.check(args.directory, args.expect_tree)
        print(
            json.dumps(seen.as_dict())
            if args.json
            else f"{args.directory}: verified, {seen.tree_sha256}"
        )
        return 0
    expected = read(args.manifest) if args.manifest else None
    report = verify.verify(args.directory, options_of(args), expected)
    tree = report.manifest.tree_sha256 if report.manifest else None
    if not report.problems and args.expect_tree not in {None, tree}:
        verify.forget(args.directory)
        other = f"{args.directory}: tree digest {tree}, expected {args.expect_tree}"
        report = replace(report, problems=(other,))
    return _report(args, report)


def _report(args: argparse.Namespace, report: verify.Report) -> int:
    """Print a verification's outcome; returns the exit status."""
    if args.json:
        print(json.dumps(report.as_dict(), indent=1))
        return int(bool(report.problems))
    for problem in report.problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    if report.problems or report.manifest is None:
        return 1
    rate = report.hashed / report.seconds / 1e9 if report.seconds else 0.0
    print(
        f"{report.root}: {len(report.manifest.files)} files, {report.manifest.total} bytes: right; "
        f"{report.hashed} bytes hashed in {report.seconds:.1f} s ({rate:.2f} GB/s)"
    )
    print(f"  tree {report.manifest.tree_sha256}")
    if report.first_use and report.manifest.origin == "first-use":
        print(
            "  first use: nobody published digests of these files, they were recorded as is. "
            "A change will show; whether they were right to begin with does not"
        )
    return 0
