"""`twinspark guard`: check that the running server's answers are right."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from twinspark.arguments import seconds
from twinspark.guards import recall, report, runner, state
from twinspark.guards.client import Plan
from twinspark.guards.context import DEPTHS, Battery, Context
from twinspark.guards.exam import ContentExam, Exam, RecallExam
from twinspark.guards.model import Check, Report, exit_status
from twinspark.guards.registry import GUARDS, chosen
from twinspark.guards.settings import SettingsError, load
from twinspark.guards.system import ABSENT, System, version

if TYPE_CHECKING:
    import argparse

    from twinspark.guards.context import Guard
    from twinspark.guards.model import NodeReport

STATE_DIR: Final = Path("/var/lib/twinspark")
CURRENT: Final = Path("/opt/twinspark/current/etc")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Arguments of every command that runs guards on a node."""
    parser.add_argument("--etc", type=Path, help=f"rendered configuration; default: {CURRENT}/*")
    parser.add_argument("--only", default="", metavar="A,B", help="only these guards")
    parser.add_argument("--skip", default="", metavar="A,B", help="not these guards")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_const", const="local", dest="where", default="all")
    where.add_argument("--api", action="store_const", const="api", dest="where")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page here")
    parser.add_argument("--seed", type=int, help="seed of the prompts; default: a new one")
    parser.add_argument("--timeout", type=seconds, default=120.0, help="limit a request, seconds")
    parser.add_argument("--state", type=Path, default=STATE_DIR, help="folder of state and history")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent")
    parser.add_argument("--list", action="store_true", help="print the guards")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `twinspark guard`."""
    add_common(parser)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="merge node reports")


def run(args: argparse.Namespace) -> int:
    """Run the guards, or merge their reports; 0 pass, 1 fail, 2 could not run."""
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else 160)
    if args.list:
        console.print(guard_table())
        return 0
    try:
        given = [report.read(path) for path in args.merge or ()]
        if not args.dry_run:
            report.check_writable(args.json, args.html)
        if given:
            found = report.merge(given)
            return finish(found, args.json, args.html, console)
        return run_here(args, "guard", console)
    except (SettingsError, report.ReportError, ValueError) as error:
        complain(f"twinspark guard: {error}")
        return 2


def complain(text: str) -> None:
    """An error's line, on standard error, so that a table that is read by a program stays whole."""
    Console(stderr=True, soft_wrap=True).print(text, style="bold yellow", markup=False)


def run_here(args: argparse.Namespace, battery: Battery, console: Console) -> int:
    """Run a battery's guards on this node.

    Raises:
        SettingsError: The configuration cannot be read.
        ValueError: Unknown guards, or an oracle that cannot be read.
    """
    context = make_context(args, battery)
    guards = [
        guard
        for guard in chosen(battery, names(args.only), names(args.skip))
        if runner.wanted_here(guard, context, args.where)
    ]
    if not guards:
        raise SettingsError("none of the chosen guards runs here: nothing would be checked")
    if args.dry_run:
        console.print(plan_table(guards, context))
        return 0
    checks = runner.run_all(guards, context, lambda found: progress(found, console))
    if context.settings.rank == 0:  # batteries run on the head; merge compares the others with it
        now = context.system.fingerprint()
        checks.append(state.fingerprint_check(context.node, now, args.state))
    made = runner.node_report(context, label(context.system), checks)
    whole = not args.only and not args.skip and args.where == "all"
    remember(made, context, args.state, whole=whole)
    return finish(Report([made]), args.json, args.html, console)


def remember(made: NodeReport, context: Context, folder: Path, *, whole: bool) -> None:
    """Put a run into the history; where that fails it says so, and the report goes on."""
    uptime = context.system.uptime_hours(context.settings.unit)
    try:
        state.record(made, folder, whole=whole, uptime_h=uptime)
    except OSError as error:
        complain(f"no history kept: {error}")


def finish(made: Report, json: Path | None, html: Path | None, console: Console) -> int:
    """Print and write a report; its exit status.

    Raises:
        ReportError: A file cannot be written; the table has been printed by then.
    """
    console.print(report.table(made))
    if json:
        report.write(made, json)
    if html:
        from twinspark.guards.html import page  # noqa: PLC0415 - only this path draws

        report.write_bytes(page(made).encode(), html)
    return exit_status(made.every())


def make_context(
    args: argparse.Namespace, battery: Battery, system: System | None = None
) -> Context:
    """Settings, oracle and depth of a run on this node.

    Raises:
        SettingsError: The configuration cannot be read, or `--etc` is needed.
        ValueError: The checkpoint's oracle file is not an oracle.
    """
    machine = system or System()
    settings = load(args.etc or only_variant(machine.path(CURRENT)))
    oracle_file = machine.path(Path(settings.model) / recall.ORACLE_FILE)
    oracle = recall.read_oracle(oracle_file) if oracle_file.exists() else None
    exam: Exam = RecallExam(oracle) if oracle else ContentExam()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**9)
    return Context(
        node=machine.node, settings=settings, system=machine, exam=exam, oracle=oracle,
        depth=DEPTHS[battery], seed=seed, battery=battery, timeout=args.timeout, state=args.state,
    )  # fmt: skip


def only_variant(folder: Path) -> Path:
    """The one rendered variant of the current release.

    Raises:
        SettingsError: There is none, or more than one.
    """
    found = sorted(path for path in folder.glob("*") if (path / "serve.yaml").exists())
    if len(found) != 1:
        raise SettingsError(f"{folder}: {len(found)} variants: name one with --etc")
    return found[0]


def label(system: System) -> str:
    """The truth label of what runs here."""
    gpu, _ = system.gpu()
    if "GB10" in gpu:
        return "on Spark"
    engine = version("vllm")
    if engine == ABSENT:
        return "no label: no engine is installed here"
    where = f"{gpu} GPU" if gpu != ABSENT else "CPU engine"
    return f"emulated ({where}, vllm {engine})"


def names(text: str) -> list[str]:
    """`a, b` to a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def progress(checks: list[Check], console: Console) -> None:
    """One line a guard while it runs, for the log of a detached battery."""
    for check in checks:
        console.print(f"{check.kind:11s} {check.name} {check.actual} {check.detail}", markup=False)


def plan_table(guards: list[Guard], context: Context) -> Table:
    """What would be sent, and its sum."""
    shown = Table(title=f"dry run against {context.settings.url}", title_justify="left")
    for column in ("guard", "requests <=", "prompt tokens <=", "new tokens <=", "limit s", "what"):
        shown.add_column(column)
    total = Plan()
    for name, plan, why in runner.plans(guards, context):
        if why:
            shown.add_row(name, "0", "0", "0", "", f"skipped: {why}")
            continue
        total += plan
        limit = f"{plan.seconds:g}" if plan.requests else ""
        figures = (plan.requests, plan.prompt_tokens, plan.completion_tokens)
        shown.add_row(name, *(f"{figure:,}" for figure in figures), limit, plan.what or "nothing")
    figures = (total.requests, total.prompt_tokens, total.completion_tokens)
    shown.add_section()
    shown.add_row("together", *(f"{figure:,}" for figure in figures), "", "")
    return shown


def guard_table() -> Table:
    """Names, places and purposes."""
    shown = Table(title="guards", title_justify="left")
    for column in ("name", "where", "runs in", "what"):
        shown.add_column(column)
    for guard in GUARDS:
        runs = " ".join(name for name in ("guard", "quick", "full") if name in guard.batteries)
        shown.add_row(guard.name, guard.scope, runs, guard.title)
    return shown
