"""What earlier runs left: the fingerprint of the last full battery, and the history."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from twinspark.guards.model import (
    Check,
    Fingerprint,
    Moment,
    NodeReport,
    exit_status,
    no_verdict,
)

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE: Final = "guard-state.json"
HISTORY_FILE: Final = "guard-history.jsonl"
HISTORY_LINES: Final = 2000  # about a year of four batteries a day


@dataclass(frozen=True, slots=True)
class LastFull:
    """The last full battery that passed.

    Attributes:
        time: Unix seconds.
        fingerprint: Versions it ran on.
    """

    time: Moment
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One run in the history.

    Attributes:
        time: Unix seconds.
        battery: Which.
        status: Exit status.
        seed: Seed of its prompts.
        failed: `guard kind` of each failure.
        seconds: Wall time of all guards.
        rates: Throughput figures, tokens/s.
        fingerprint: Versions.
        uptime_h: Hours since the engine's start; None = unknown, as in lines of earlier versions.
        margins: Smallest margin by where it was asked, nats: `margin`, and Guard 5's arms.
        whole: Whether every guard of the battery was asked for; None as for `uptime_h`.
    """

    time: Moment
    battery: str
    status: int
    seed: int
    failed: list[str]
    seconds: float
    rates: dict[str, float]
    fingerprint: Fingerprint
    uptime_h: float | None = None
    margins: dict[str, float] = field(default_factory=dict)
    whole: bool | None = None


def last_full(folder: Path) -> LastFull | None:
    """The last full battery, or None; an unreadable file counts as none."""
    try:
        return TypeAdapter(LastFull).validate_json((folder / STATE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def fingerprint_check(node: str, now: Fingerprint, folder: Path) -> Check:
    """Say whether the versions are still those of the last full battery."""
    before = last_full(folder)
    if before is None:
        why = "no full battery has passed on this node yet: twinspark battery full"
        return no_verdict("fingerprint", node, "note", why)
    day = time.strftime("%Y-%m-%d", time.gmtime(before.time))
    changed = before.fingerprint.changes(now)
    if changed:
        why = f"changed since the full battery of {day}: {', '.join(changed)}; run it again"
    else:
        why = f"as at the full battery of {day}"
    return no_verdict("fingerprint", node, "note", why)


def record(report: NodeReport, folder: Path, *, whole: bool, uptime_h: float | None = None) -> None:
    """Append a line to the history; a passed full battery becomes the fingerprint to compare with.

    Args:
        report: What was found.
        folder: Where state and history are kept.
        whole: Whether every guard of the battery was asked for; a part proves no versions.
        uptime_h: Hours since the engine's start.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    status = exit_status(report.checks)
    if report.battery == "full" and whole and status == 0:
        state = LastFull(report.time, report.fingerprint)
        part = folder / f".{STATE_FILE}.{os.getpid()}"
        part.write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
        part.replace(folder / STATE_FILE)
    line = HistoryLine(
        report.time, report.battery, status, report.seed,
        [f"{check.name} {check.kind}" for check in report.checks if check.ok is False],
        round(sum(seconds_by_guard(report.checks).values()), 1),
        {
            check.name.partition(".")[2]: check.data["tokens_per_s"]
            for check in report.checks
            if check.name.startswith("throughput.") and check.data
        },
        report.fingerprint,
        None if uptime_h is None else round(uptime_h, 3),
        smallest_margins(report.checks),
        whole,
    )  # fmt: skip
    with (folder / f".{HISTORY_FILE}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a guard and a battery may end together
        _append(folder, json.dumps(asdict(line)).encode())


def _append(folder: Path, line: bytes) -> None:
    """Add a line; those that nobody can read stay as they are."""
    path = folder / HISTORY_FILE
    kept = path.read_bytes().splitlines() if path.exists() else []
    texts = [*kept[-(HISTORY_LINES - 1) :], line]
    part = folder / f".{HISTORY_FILE}.{os.getpid()}"
    part.write_bytes(b"\n".join(texts) + b"\n")
    part.replace(path)


def smallest_margins(checks: list[Check]) -> dict[str, float]:
    """Smallest margin of the margin probe and of each arm of Guard 5, nats; NaN is left out."""
    found = {}
    for check in checks:
        guard, _, arm = check.name.partition(".")
        if guard in {"margin", "neighbours"} and check.data:
            # a NaN that has been through the file of an interrupted battery is None
            given = check.data.get("margins", [])
            margins = [m for m in given if m is not None and not math.isnan(m)]
            if margins:
                found[arm or guard] = round(min(margins), 4)
    return found


def lines(folder: Path) -> list[HistoryLine]:
    """The history, oldest first; lines that cannot be read are left out."""
    try:
        text = (folder / HISTORY_FILE).read_bytes()
    except OSError:
        return []
    read = TypeAdapter(HistoryLine)
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValidationError):
            found.append(read.validate_json(line))
    return found


def history(folder: Path, fingerprint: Fingerprint, rate: str) -> list[float]:
    """One throughput figure over the earlier runs on the same versions that passed."""
    return [
        line.rates[rate]
        for line in lines(folder)
        if line.fingerprint == fingerprint and line.status == 0 and rate in line.rates
    ]


def seconds_by_guard(checks: list[Check]) -> dict[str, float]:
    """Wall time of each guard: its checks all carry the same figure."""
    return {check.name.partition(".")[0]: check.seconds for check in checks}
