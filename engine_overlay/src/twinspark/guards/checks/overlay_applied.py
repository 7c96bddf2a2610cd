"""overlay_applied: every process of the engine holds the same patches.

vLLM swallows an import error of a plugin and serves unpatched; only the processes' own reports,
compared with the live processes, show it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, shorten, verdict
from twinspark.guards.overlay_report import ProcessReport, read_reports

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.system import Process

# a report is written after its process starts; start times count in clock ticks of 10 ms from a
# boot time in whole seconds
CLOCK_SLACK_S = 2.0
# findings 10, W3 to W5 and 13b: counted by the patches in check mode or always; and a kernel of the
# overlay that its warm-up has missed
FAULT_COUNTERS = frozenset(
    {
        "hc_prenorm_disagreements",
        "mqa_logits_disagreements",
        "nan_rows",
        "o_proj_disagreements",
        "overlay_late_compilations",
    }
)
# finding 11: a prompt's last 7 to 11 tokens beside decodes count one, and no harm of it is known;
# a kernel of the engine's own that a request waited for: slow once, not wrong
WATCHED_COUNTERS = frozenset({"decode_boundary_disagreements", "late_compilations"})


def run(context: Context) -> list[Check]:
    """Compare the live processes of the unit with their reports."""
    settings, node = context.settings, context.node
    pid = context.system.main_pid(settings.unit)
    tree = context.system.tree(pid) if pid else []
    live = [process for process in tree if process.pid == pid or process.is_engine]
    if not live:
        hint = f"systemctl status {settings.unit}"
        expected = "the unit's processes"
        return [verdict("overlay_applied", node, False, expected, "none", hint, failure="missing")]
    folder = Path(settings.environment.get("TWINSPARK_REPORT_DIR", "/run/twinspark/overlay"))
    reports = read_reports(context.system.path(folder))
    found, silent = _pair(live, reports.by_pid)
    detail = [*silent, *reports.unreadable]
    complete = verdict(
        "overlay_applied.reports", node, not detail, f"{len(live)} processes report",
        f"{len(found)} of {len(live)} in {folder}", shorten(detail), failure="missing",
    )  # fmt: skip
    return [
        complete,
        _roles(context, found),
        _same_set(context, found),
        *_facts(context, found),
        *_counters(context, found),
    ]


def _pair(
    live: list[Process], by_pid: dict[int, ProcessReport]
) -> tuple[list[ProcessReport], list[str]]:
    """Reports of live processes; one from before its process started is another's, long gone."""
    found, silent = [], []
    for process in live:
        report = by_pid.get(process.pid)
        if report is None:
            silent.append(f"pid {process.pid} ({process.title[:40]}) has no report")
        elif report.time + CLOCK_SLACK_S < process.started:
            silent.append(f"pid {process.pid}: its report is older than the process")
        else:
            found.append(report)
    return found, silent


def _roles(context: Context, found: list[ProcessReport]) -> Check:
    first = "headless" if context.settings.headless else "api_server"
    wanted = {first, "worker"} | (set() if context.settings.headless else {"engine_core"})
    have = Counter(report.role for report in found)
    missing = sorted(wanted - set(have))
    shown = ", ".join(f"{role} {count}" for role, count in sorted(have.items())) or "none"
    detail = f"no report from: {shorten(missing)}" if missing else ""
    return verdict(
        "overlay_applied.roles", context.node, not missing, ", ".join(sorted(wanted)), shown,
        detail, failure="missing",
    )  # fmt: skip


def _same_set(context: Context, found: list[ProcessReport]) -> Check:
    sets = [report.patch_set for report in found]
    union = frozenset[tuple[str, str]]().union(*sets)
    failed = sorted(name for name, state in union if state == "failed")
    common = frozenset.intersection(*sets) if sets else union
    differ = sorted({name for name, _ in union - common})
    held = sorted(name for name, state in union if state == "held")
    skipped = {p.id: p.reason for r in found for p in r.patches if p.state == "skipped"}
    detail = []
    if failed:
        detail.append(f"failed: {shorten(failed)}")
    if differ:
        detail.append(f"not the same on all processes: {shorten(differ)}")
    if not held and not skipped:
        detail.append("no process names any patch")
    actual = f"{len(held)} held ({shorten(held)}), {len(skipped)} skipped"
    kernels = {f"{k.op}={k.kernel}" for r in found for k in r.kernels}
    data = {
        "patches": sorted([name, state] for name, state in union),
        "skipped": {name: reason or "" for name, reason in skipped.items()},
        "kernels": sorted(kernels),
    }
    ok = bool(found) and not detail
    return verdict(
        "overlay_applied.same_set", context.node, ok, "one set, none failed", actual,
        "; ".join(detail), data=data,
    )  # fmt: skip


def _facts(context: Context, found: list[ProcessReport]) -> list[Check]:
    """What the workers found out for themselves (KV layout, memory) is the same on all of them."""
    workers = [report.facts for report in found if report.role == "worker"]
    names = sorted({name for facts in workers for name in facts})
    if not names:
        return []
    values = {
        name: {json.dumps(facts.get(name), sort_keys=True) for facts in workers} for name in names
    }
    off = [name for name in names if len(values[name]) > 1]
    data = {"facts": {name: min(values[name]) for name in names}}
    equal = f"{len(names) - len(off)} equal"
    return [
        verdict(
            "overlay_applied.facts", context.node, not off, f"{len(names)} equal", equal,
            shorten(off), data=data,
        )
    ]  # fmt: skip


def _counters(context: Context, found: list[ProcessReport]) -> list[Check]:
    """What the patches watch for and must never see."""
    sums = Counter[str]()
    for report in found:
        sums.update(report.counters)
    counted = sums.keys() & (FAULT_COUNTERS | WATCHED_COUNTERS)
    if not counted:
        return []
    said = {name: f"{name} {sums[name]}" for name in sorted(counted) if sums[name]}
    faults = [text for name, text in said.items() if name in FAULT_COUNTERS]
    harmless = [text for name, text in said.items() if name in WATCHED_COUNTERS]
    actual = shorten([*faults, *harmless]) or "all 0"
    return [
        verdict("overlay_applied.counters", context.node, not faults, "no fault counted", actual)
    ]


GUARD = Guard("overlay_applied", "local", "every engine process holds the same patches", EVERY, run)
