"""The history of a node as a trend: age of the engine, verdicts, and how its margins drift."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from twinspark.guards.state import HistoryLine

SHOWN: Final = 40
FRESH_H, AGED_H = 1.0, 2.0  # finding 13 needs hours of traffic before a lone question is soft
ARMS: Final = ("margin", "alone", "decoding", "prefilling")


@dataclass(frozen=True, slots=True)
class Step:
    """One run beside those before it on the same versions.

    Attributes:
        line: The run.
        drift: Its margins minus the median of the earlier runs that passed, nats; an arm without
            earlier runs is left out.
        changes: Versions that changed since the run before.
    """

    line: HistoryLine
    drift: dict[str, float]
    changes: list[str]


def steps(lines: Sequence[HistoryLine]) -> list[Step]:
    """Each run with its drift, oldest first."""
    found = []
    for index, line in enumerate(lines):
        earlier = [
            other
            for other in lines[:index]
            if other.fingerprint == line.fingerprint and other.status == 0
        ]
        drift = {
            arm: round(margin - median(known), 4)
            for arm, margin in line.margins.items()
            if (known := [other.margins[arm] for other in earlier if arm in other.margins])
        }
        changes = lines[index - 1].fingerprint.changes(line.fingerprint) if index else []
        found.append(Step(line, drift, changes))
    return found


def summary(lines: Sequence[HistoryLine]) -> list[str]:
    """What the runs on the newest versions say together; nothing without a run."""
    if not lines:
        return ["no run is recorded yet"]
    now = [line for line in lines if line.fingerprint == lines[-1].fingerprint]
    whole = [line for line in now if line.whole is not False and line.status != 2]
    ages = [line.uptime_h for line in whole if line.uptime_h is not None]
    span = f", engine {min(ages):.1f} to {max(ages):.1f} h old" if ages else ""
    failed = sum(line.status == 1 for line in whole)
    said = [f"{len(whole)} runs on the present versions, {failed} found a fault{span}"]
    parts = [line for line in now if line.whole is False and line.status != 2]
    failed = sum(line.status == 1 for line in parts)
    if len(whole) < len(now):
        unable = len(now) - len(whole) - len(parts)
        said.append(
            f"not counted: {len(parts)} of some guards only, {failed} found a fault; "
            f"{unable} that could not run"
        )
    asked = [line for line in now if line.uptime_h is not None and "alone" in line.margins]
    if not any(line.uptime_h is not None and line.uptime_h >= AGED_H for line in asked):
        return [*said, f"Guard 5 was not asked yet on an engine older than {AGED_H:g} h"]
    return said + [text for arm in ARMS if (text := _ageing(asked, arm))]


def _ageing(asked: Sequence[HistoryLine], arm: str) -> str:
    """Smallest margin of one arm, fresh and aged."""
    dated = [(x.uptime_h or 0.0, x.margins[arm]) for x in asked if arm in x.margins]
    fresh = [margin for age, margin in dated if age < FRESH_H]
    aged = [margin for age, margin in dated if age >= AGED_H]
    if not aged:
        return ""
    text = f"{arm}: aged ({AGED_H:g} h and more, {len(aged)} runs) at least {min(aged):.2f} nats"
    if not fresh:
        return f"{text}, no fresh run to compare with"
    return f"{text}, fresh {min(fresh):.2f}, drift {min(aged) - min(fresh):+.2f}"


def table(lines: Sequence[HistoryLine], folder: Path) -> Table:
    """The last runs, newest last, with the summary as caption."""
    shown = Table(title=f"history in {folder}", title_justify="left", caption_justify="left")
    columns = ("when", "what", "engine h", "status", "s", "failed", "margin nats (drift)")
    for column in (*columns, "tokens/s", "versions"):
        shown.add_column(column, overflow="fold")
    every = steps(lines)
    for index, step in list(enumerate(every))[-SHOWN:]:
        line = step.line
        rates = " ".join(f"{name} {rate:.0f}" for name, rate in line.rates.items())
        versions = ", ".join(step.changes) if index else line.fingerprint.vllm
        shown.add_row(
            time.strftime("%F %H:%M", time.localtime(line.time)),
            f"{line.battery} (part)" if line.whole is False else line.battery,
            "?" if line.uptime_h is None else f"{line.uptime_h:.1f}", str(line.status),
            f"{line.seconds:.0f}", ", ".join(line.failed), _margins(step), rates, versions,
        )  # fmt: skip
    shown.caption = "\n".join(summary(lines))
    return shown


def _margins(step: Step) -> str:
    words = []
    for arm in ARMS:
        if arm in step.line.margins:
            drift = f" ({step.drift[arm]:+.2f})" if arm in step.drift else ""
            words.append(f"{arm} {step.line.margins[arm]:.2f}{drift}")
    return ", ".join(words)
