"""`twinspark variant`: check, render, compare, plan and document env files."""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinspark.variant.document import document, shown
from twinspark.variant.errors import HostError, VariantError
from twinspark.variant.inventory import read_pair
from twinspark.variant.keys import key_of
from twinspark.variant.loader import load
from twinspark.variant.plan import plan
from twinspark.variant.render import render

if TYPE_CHECKING:
    import argparse

    from twinspark.variant.schema import Variant

OK, WRONG, COULD_NOT_RUN = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="check env files; says what is wrong, by line")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.add_argument("--json", action="store_true", help="print JSON instead of lines")
    show = actions.add_parser("render", help="print or write what one node gets")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument("--inventory", type=Path, required=True, help="inventory in YAML")
    show.add_argument("--host", required=True, help="name of the node in the inventory")
    show.add_argument("--output", type=Path, help="folder to write the three files to")
    compare = actions.add_parser("diff", help="compare two variants, key by key")
    compare.add_argument("first", type=Path, metavar="A")
    compare.add_argument("second", type=Path, metavar="B")
    compare.add_argument("--json", action="store_true", help="print JSON instead of a table")
    budget = actions.add_parser("plan", help="print the KV and memory budget")
    budget.add_argument("file", type=Path, metavar="FILE")
    budget.add_argument("--json", action="store_true", help="print JSON instead of tables")
    describe = actions.add_parser("document", help="print env/README.md, or write or check it")
    describe.add_argument("files", nargs="*", type=Path, help="env files; env/*.env when omitted")
    group = describe.add_mutually_exclusive_group()
    group.add_argument("--write", type=Path, metavar="README", help="write it there")
    group.add_argument("--check", type=Path, metavar="README", help="fail when it has drifted")


def run(args: argparse.Namespace) -> int:
    """Run one action; refusals go to stderr, one line each."""
    action = {
        "check": _check,
        "render": _render,
        "diff": _diff,
        "plan": _plan,
        "document": _document,
    }[args.action]
    try:
        status = action(args)
        sys.stdout.flush()
    except (VariantError, HostError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except BrokenPipeError:  # `| head` has read enough; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_RUN
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return COULD_NOT_RUN
    return status


def _console() -> Console:
    """The terminal, or lines wide enough for a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else 160)


def _check(args: argparse.Namespace) -> int:
    results: dict[str, list[str]] = {}
    for path in args.files:
        try:
            load(path)
            results[str(path)] = []
        except VariantError as error:
            results[str(path)] = list(error.lines())
    if args.json:
        print(json.dumps({"schema": "twinspark.variant-check/1", "files": results}, indent=2))
    else:
        for name, problems in results.items():
            for line in problems or [f"{name}: ok"]:
                print(line, file=sys.stderr if problems else sys.stdout)
    return WRONG if any(results.values()) else OK


def _render(args: argparse.Namespace) -> int:
    nodes = read_pair(args.inventory)
    if args.host not in nodes:
        raise HostError(f"{args.host} is not in {args.inventory}: name one of {', '.join(nodes)}")
    files = render(load(args.file), nodes[args.host]).files()
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if args.output:
            (args.output / name).write_text(text, encoding="utf-8")
        else:
            print(f"## {name}\n{text}")
    return OK


def _diff(args: argparse.Namespace) -> int:
    first, second = load(args.first), load(args.second)
    rows = [
        (name, _said(first, name), _said(second, name))
        for name in type(first).model_fields
        if _said(first, name) != _said(second, name)
    ]
    if args.json:
        changed = {name: {first.name: old, second.name: new} for name, old, new in rows}
        print(json.dumps({"schema": "twinspark.variant-diff/1", "keys": changed}, indent=2))
        return OK
    table = Table()
    for heading in ("key", first.name, second.name):
        table.add_column(escape(heading), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    _console().print(table if rows else "no key differs")
    return OK


def _said(variant: Variant, name: str) -> str:
    if not variant.takes(key_of(type(variant).model_fields[name])):
        return "(not taken)"
    return shown(getattr(variant, name))


def _plan(args: argparse.Namespace) -> int:
    refusal: VariantError | None = None
    try:
        variant = load(args.file)
    except VariantError as error:
        if error.variant is None:
            raise
        variant, refusal = error.variant, error
    if not variant.is_deepseek:
        sys.stderr.write(f"{args.file}: the CPU engine has no pinned pool to plan\n")
        return COULD_NOT_RUN
    budget = plan(variant)
    if args.json:
        print(json.dumps(budget.as_json(), indent=2))
    else:
        budget.show(_console())
    if refusal is not None:
        raise refusal
    return OK


def _document(args: argparse.Namespace) -> int:
    files = args.files or sorted(Path("env").glob("*.env"))
    text = document({path.stem: load(path) for path in files})
    if args.write:
        args.write.write_text(text, encoding="utf-8")
    elif args.check:
        old = args.check.read_text(encoding="utf-8")
        lines = difflib.unified_diff(old.splitlines(), text.splitlines(), str(args.check), "schema")
        drift = "\n".join(lines)
        if drift:
            sys.stderr.write(
                f"{drift}\nwrite it anew: twinspark variant document --write {args.check}\n"
            )
            return WRONG
    else:
        print(text, end="")
    return OK
