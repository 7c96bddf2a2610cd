"""`twinspark battery`: the guards in depth, detached from the terminal, with a history."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import Console

from twinspark.arguments import seconds
from twinspark.guards import cli, report, runner, state, trend
from twinspark.guards.battery import (
    BatteryError,
    BusyError,
    Folder,
    Progress,
    detach,
    status,
    stop,
)
from twinspark.guards.model import Report
from twinspark.guards.registry import GUARDS, chosen
from twinspark.guards.settings import SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import Literal, TextIO

    from twinspark.guards.context import Context

WAIT_S: Final = 0.5
SETTLE_S: Final = 10.0
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `twinspark battery`."""
    words = ["quick", "full", "status", "resume", "stop", "history", "log"]
    parser.add_argument(
        "what", nargs="?", choices=words, help="a battery to start, or what to do with it"
    )
    parser.add_argument("--foreground", action="store_true", help="run here, not detached")
    parser.add_argument("--wait", action="store_true", help="detached, but wait for its end")
    parser.add_argument(
        "--unless-running", action="store_true",
        help="0 instead of 2 where a battery runs already, and it is left alone (for a timer)",
    )  # fmt: skip
    parser.add_argument(
        "--settle", type=seconds, default=0.0, metavar="SECONDS",
        help="wait for a server that does not answer yet until its engine is so old",
    )  # fmt: skip
    parser.add_argument("--lock-fd", type=int, help="internal: the lock that the starter holds")
    cli.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Start, resume or ask; 0 pass, 1 fail, 2 could not run."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if args.list:
        console.print(cli.guard_table())
        return 0
    if args.what is None:
        cli.complain("twinspark battery: say what: quick, full, status, resume, stop, history, log")
        return 2
    folder = Folder(args.state / "battery")
    do = _start if args.what in {"quick", "full", "resume"} else _ask
    return _complaining(lambda: do(args, folder, console))


def _complaining(do: Callable[[], int]) -> int:
    """The exit status of `do`; 2 and a line where it could not."""
    try:
        return do()
    except (BatteryError, SettingsError, report.ReportError, ValueError) as error:
        cli.complain(f"twinspark battery: {error}")
        return 2


def _ask(args: argparse.Namespace, folder: Folder, console: Console) -> int:
    code = 0
    if args.what == "status":
        line, code = status(folder)
        console.print(line, markup=False)
    elif args.what == "stop":
        console.print(stop(folder), markup=False)
    elif args.what == "history":
        console.print(trend.table(state.lines(args.state), args.state))
    else:
        try:
            text = folder.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            why = f"{folder.log}: {error.strerror}: has a battery run on this node?"
            raise BatteryError(why) from error
        console.out(text, end="")
    return code


def _start(args: argparse.Namespace, folder: Folder, console: Console) -> int:
    """Run it here when asked to or when this is the detached process; otherwise detach."""
    if args.dry_run and args.what != "resume":
        return cli.run_here(args, args.what, console)
    report.check_writable(args.json, args.html)
    try:
        held = args.lock_fd if args.lock_fd is not None else folder.lock()
    except BusyError as error:
        if not args.unless_running:
            raise
        console.print(f"{error}; nothing was started", markup=False)
        return 0
    try:
        if args.lock_fd is None:
            # here, in sight: what can fail does so now, and `status` knows of it from the start
            folder.claim(held, os.getpid())
            folder.write(_begin(args, folder))
            folder.open_log(_arguments(args), anew=args.what != "resume")
        if args.lock_fd is not None:
            return _run(args, folder, console)
        if args.foreground:
            with _logged(folder):
                return _complaining(lambda: _run(args, folder, console))
        pid = detach(folder, _arguments(args), held)
    finally:
        os.close(held)
    console.print(
        f"{args.what}: pid {pid}, log {folder.log}; twinspark battery status", markup=False
    )
    return _wait(folder) if args.wait else 0


class _Both(io.TextIOBase):
    """A terminal, and the log without the terminal's colours."""

    def __init__(self, terminal: TextIO, log: TextIO) -> None:
        self.terminal, self.log = terminal, log

    def write(self, text: str) -> int:
        self.log.write(_COLOUR.sub("", text))
        return self.terminal.write(text)

    def flush(self) -> None:
        self.terminal.flush()

    def isatty(self) -> bool:
        return self.terminal.isatty()


@contextmanager
def _logged(folder: Folder) -> Iterator[None]:
    """What a battery says in the foreground stands in its log as well, line by line."""
    with (
        folder.log.open("a", encoding="utf-8", buffering=1) as log,
        redirect_stdout(_Both(sys.stdout, log)),
        redirect_stderr(_Both(sys.stderr, log)),
    ):
        yield


def _wait(folder: Folder) -> int:
    while folder.running():
        time.sleep(WAIT_S)
    return status(folder)[1]


def _arguments(args: argparse.Namespace) -> list[str]:
    """The same command for the detached process."""
    words = [args.what, "--state", str(args.state.resolve()), "--timeout", str(args.timeout)]
    for name in ("etc", "json", "html"):
        path = getattr(args, name)
        words += [f"--{name}", str(path.absolute())] if path else []
    for name in ("only", "skip"):
        words += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
    words += ["--seed", str(args.seed)] if args.seed is not None else []
    words += ["--settle", str(args.settle)] if args.settle else []
    return words + ([f"--{args.where}"] if args.where != "all" else [])


def _resumable(before: Progress | None, context: Context) -> Progress:
    if before is None or before.status is not None:
        raise BatteryError("nothing to resume: the last battery has finished, or none has run")
    changed = before.fingerprint.changes(context.system.fingerprint())
    if changed:
        raise BatteryError(f"not resumed, the versions have changed: {', '.join(changed)}")
    return before


def _begin(args: argparse.Namespace, folder: Folder) -> Progress:
    """The progress to go on from: an interrupted battery's, or a new one."""
    if args.what == "resume":
        before = _resumable(folder.read(), cli.make_context(args, "quick"))
        return replace(before, resumes=before.resumes + 1)
    battery: Literal["quick", "full"] = args.what
    context = cli.make_context(args, battery)
    guards = [
        guard.name
        for guard in chosen(battery, cli.names(args.only), cli.names(args.skip))
        if runner.wanted_here(guard, context, args.where)
    ]
    return Progress(
        battery, time.time(), context.seed, context.system.fingerprint(), guards,
        arguments=_arguments(args),
    )  # fmt: skip


def _settle(context: Context, seconds: float) -> None:
    """Wait while a young engine loads; an older one without an answer is the guards' business."""
    while seconds > 0:
        age = context.system.uptime_hours(context.settings.unit)
        if age is None or age * 3600 >= seconds or runner.answers(context):
            return
        time.sleep(SETTLE_S)


def _run(args: argparse.Namespace, folder: Folder, console: Console) -> int:
    """Run the guards that the progress in `folder` leaves to do."""
    progress = folder.read()
    if progress is None:
        raise BatteryError(f"{folder.progress} is gone: start the battery anew")
    context = replace(cli.make_context(args, progress.battery), seed=progress.present_seed)
    _settle(context, args.settle)
    for guard in GUARDS:
        if guard.name not in progress.guards or guard.name in progress.done:
            continue
        found = runner.run_one(guard, context)
        cli.progress(found, console)
        progress = progress.after(guard.name, found)
        folder.write(progress)
    note = state.fingerprint_check(context.node, progress.fingerprint, args.state)
    made = runner.node_report(
        replace(context, seed=progress.seed), cli.label(context.system), [*progress.checks, note]
    )
    whole = not {"--only", "--skip", "--local", "--api"} & set(progress.arguments)
    cli.remember(made, context, args.state, whole=whole)
    whole_report = Report([made])
    report.write(whole_report, folder.report)
    page = args.html or folder.report.with_suffix(".html")
    code = cli.finish(whole_report, args.json, page, console)
    folder.write(replace(progress, status=code))
    return code
