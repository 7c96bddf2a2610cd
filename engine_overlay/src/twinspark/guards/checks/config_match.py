"""config_match: the processes run with the configuration that was rendered, not an older one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, shorten, verdict
from twinspark.guards.overlay_report import read_reports

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.system import Process


def run(context: Context) -> list[Check]:
    """Argv and environment of the unit's main process, and the file that the engine read."""
    settings, system, node = context.settings, context.system, context.node
    pid = system.main_pid(settings.unit)
    process = system.processes().get(pid) if pid else None
    if process is None:
        name = f"main process of {settings.unit}"
        hint = f"none runs: systemctl status {settings.unit}"
        return [verdict("config_match", node, False, name, "none", hint, failure="missing")]
    return [_argv(context, process), _environment(context, process), _config_file(context, pid)]


def _argv(context: Context, process: Process) -> Check:
    """`vllm serve --config <serve.yaml>`, and nothing after it that could override the file."""
    wanted = (context.settings.etc / "serve.yaml").resolve()
    words = list(process.argv)
    rest = words[words.index("serve") + 1 :] if "serve" in words else words
    given = rest[rest.index("--config") + 1] if "--config" in rest[:-1] else ""
    same = bool(given) and context.system.path(given).resolve() == wanted
    extra = [word for word in rest if word not in {"--config", given}]
    detail = "another file" if given and not same else ""
    if extra:
        detail = f"flags beside the file override it: {shorten(extra)}"
    expected = f"serve --config {wanted}"
    ok = same and not extra
    return verdict("config_match.argv", context.node, ok, expected, " ".join(rest), detail)


def _environment(context: Context, process: Process) -> Check:
    wanted = context.settings.environment
    try:
        running = context.system.environ(process.pid)
    except PermissionError:
        return Check(
            "config_match.environment", context.node, None, "", "",
            f"/proc/{process.pid}/environ: run as root or as the unit's user", "broken",
        )  # fmt: skip
    off = [
        f"{key}={running.get(key, '(unset)')} instead of {value}"
        for key, value in wanted.items()
        if running.get(key) != value
    ]
    name, equal = "config_match.environment", len(wanted) - len(off)
    detail = shorten(off, 3)
    return verdict(name, context.node, not off, f"{len(wanted)} equal", f"{equal} equal", detail)


def _config_file(context: Context, pid: int) -> Check:
    """The digest that the process itself took of its file when it read it."""
    name, wanted = "config_match.file", context.settings.sha256["serve.yaml"]
    folder = context.settings.environment.get("TWINSPARK_REPORT_DIR", "/run/twinspark/overlay")
    report = read_reports(context.system.path(Path(folder))).by_pid.get(pid)
    if report is None or report.config is None:
        why = "no overlay report" if report is None else "its report names no config file"
        detail = f"pid {pid}: {why} in {folder}"
        return verdict(name, context.node, False, wanted[:12], "none", detail, failure="missing")
    read = report.config.sha256
    detail = "" if read == wanted else "rendered again since the start: restart the unit"
    return verdict(name, context.node, read == wanted, wanted[:12], read[:12], detail)


GUARD = Guard(
    "config_match", "local", "running argv, environment and file are the rendered", EVERY, run
)
