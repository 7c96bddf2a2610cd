"""logs: what the unit wrote since its start: fatal lines, and only the legitimate stride widths."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Final

from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, no_verdict, shorten, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context

LINES: Final = 200_000
FATAL: Final[dict[str, re.Pattern[str]]] = {
    "device-side assert": re.compile(r"device-side assert|indexSelectSmallIndex"),
    "CUDA error": re.compile(r"CUDA error|cudaError|Xid"),
    "engine died": re.compile(r"EngineDeadError|EngineCore encountered a fatal error"),
    "worker died": re.compile(r"Worker proc \S+ died|WorkerProc hit an exception"),
    "plugin failed": re.compile(r"Failed to load plugin"),
    "step timed out": re.compile(r"RPC call to \w+ timed out"),
}
# the patch for finding 13 logs each new width once; 512 is the decode bucket, the other the width
# at capture: context / 128, rounded up to 128 (8,192 at 1M). Source: c128a_max_compressed,
# vllm/models/deepseek_v4/sparse_mla.py:170@0.27.1
_WIDTH: Final = re.compile(r"topk[ _]width[ =:]+(\d+)")
_BUCKET: Final = 512
_ALIGNMENT: Final = 128


def run(context: Context) -> list[Check]:
    """Read the journal of this start of the unit."""
    settings, node = context.settings, context.node
    lines = journal(settings.unit)
    if not lines:
        return [no_verdict("logs", node, "skipped", f"no journal lines of {settings.unit}")]
    counts = Counter(
        name for line in lines for name, pattern in FATAL.items() if pattern.search(line)
    )
    seen = [f"{name} ({count})" for name, count in sorted(counts.items())]
    checks = [
        verdict(
            "logs.fatal", node, not seen, "none", shorten(seen) or "none", f"{len(lines)} lines"
        )
    ]
    widths = {int(found[1]) for line in lines if (found := _WIDTH.search(line))}
    if not widths:
        why = "no stride width was logged (no graph of the C128A path, or the patch is not there)"
        return [*checks, no_verdict("logs.stride_widths", node, "skipped", why)]
    allowed = legitimate_widths(settings.max_model_len)
    why = "finding 13: capture and replay differ" if widths - allowed else ""
    return [
        *checks,
        verdict(
            "logs.stride_widths", node, widths <= allowed, f"only {sorted(allowed)}",
            str(sorted(widths)), why,
        ),
    ]  # fmt: skip


def legitimate_widths(max_model_len: int) -> set[int]:
    """The decode bucket and the width at graph capture."""
    compressed = -(-max_model_len // 128)
    return {_BUCKET, -(-compressed // _ALIGNMENT) * _ALIGNMENT}


def journal(unit: str) -> list[str]:
    """Lines of the unit's present invocation; empty without a journal."""
    try:
        started = subprocess.run(
            ["systemctl", "show", "-p", "InvocationID", "--value", unit],
            capture_output=True, text=True, timeout=20, check=False,
        ).stdout.strip()  # fmt: skip
        if not started:
            return []
        shown = subprocess.run(
            ["journalctl", "-o", "cat", "--no-pager", "-n", str(LINES),
             f"_SYSTEMD_INVOCATION_ID={started}"],
            capture_output=True, text=True, timeout=120, check=False, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return shown.stdout.splitlines()


GUARD = Guard("logs", "local", "no fatal lines, only legitimate stride widths", EVERY, run)
