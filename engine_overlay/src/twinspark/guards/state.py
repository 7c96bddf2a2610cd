"""What earlier runs left: the fingerprint of the last full battery, and the history."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from twinspark.guards.model import Check, Fingerprint, NodeReport, exit_status, no_verdict

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

    time: float
    fingerprint: Fingerprint


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


def record(report: NodeReport, folder: Path) -> None:
    """Append a line to the history; a passed full battery becomes the fingerprint to compare with.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    status = exit_status(report.checks)
    if report.battery == "full" and status == 0:
        state = LastFull(report.time, report.fingerprint)
        part = folder / f".{STATE_FILE}.{os.getpid()}"
        part.write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
        part.replace(folder / STATE_FILE)
    line = {
        "time": report.time,
        "battery": report.battery,
        "status": status,
        "seed": report.seed,
        "failed": [f"{check.name} {check.kind}" for check in report.checks if check.ok is False],
        "seconds": round(sum(seconds_by_guard(report.checks).values()), 1),
        "fingerprint": asdict(report.fingerprint),
    }
    history = folder / HISTORY_FILE
    kept = history.read_text(encoding="utf-8").splitlines() if history.exists() else []
    lines = [*kept[-(HISTORY_LINES - 1) :], json.dumps(line)]
    part = folder / f".{HISTORY_FILE}.{os.getpid()}"
    part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    part.replace(history)


def seconds_by_guard(checks: list[Check]) -> dict[str, float]:
    """Wall time of each guard: its checks all carry the same figure."""
    return {check.name.partition(".")[0]: check.seconds for check in checks}
