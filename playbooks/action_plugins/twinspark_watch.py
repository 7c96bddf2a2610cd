"""An Ansible action for commands that take minutes to hours: one that shows how far they are.

    - twinspark_watch:
        unit: twinspark-fetch            # name of the transient unit, without .service
        argv: [/opt/.../tool, fetch, ...]
        env: {HF_ENDPOINT: https://...}  # optional
        user: twinspark                  # optional; root otherwise

The command runs in a transient unit of the node's systemd, so it does not end with the controller
or its connection: the same task, played again, waits for the one that is still at work. Its last
line is printed whenever it is a new one. Returns rc and stdout (both streams, their end).
"""

# ruff: noqa: INP001  Ansible loads plugins by folder, not as a package

from __future__ import annotations

import shlex
import time
from typing import Any

from ansible.errors import AnsibleError  # type: ignore[import-untyped]  # has no types
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]  # has no types
from ansible.utils.display import Display  # type: ignore[import-untyped]

FIRST_LOOK_S, LOOK_S = 0.5, 10.0  # a lab's command takes a second, a Spark's an hour
LINES_KEPT = 400


class ActionModule(ActionBase):  # type: ignore[misc]  # its base has no types
    """Start or join a unit, follow its output, return its end."""

    _VALID_ARGS = frozenset({"unit", "argv", "env", "user"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the task on one node."""
        super().run(tmp, task_vars)
        self._task_vars = task_vars or {}
        args = self._task.args
        argv = [str(word) for word in args["argv"]]
        if self._task.check_mode:
            return {"skipped": True, "changed": False, "msg": f"would run {shlex.join(argv)}"}
        unit, log = f"{args['unit']}.service", f"/run/{args['unit']}.log"
        if self._show(unit)["SubState"] == "running":
            self._say("joins the one that is still at work")
        else:
            self._start(unit, log, argv, args.get("env", {}), str(args.get("user", "root")))
        shown = self._follow(unit, log)
        text = self._command("tail", "-n", str(LINES_KEPT), log)
        self._forget(unit)
        status = int(shown["ExecMainStatus"]) or (0 if shown["Result"] == "success" else 1)
        result = {"rc": status, "stdout": text, "stdout_lines": text.splitlines(), "stderr": ""}
        if status:
            last = text.strip().splitlines()[-1:] or [shown["Result"]]
            return {**result, "failed": True, "changed": True, "msg": last[0]}
        return {**result, "changed": True}

    def _command(self, *argv: str, check: bool = True) -> str:
        """Run one short command on the node, as the task's user; what it prints."""
        done = self._low_level_execute_command(shlex.join(argv))
        if check and done["rc"] != 0:
            said = done["stderr"].strip() or done["stdout"].strip() or "it said nothing"
            raise AnsibleError(f"{shlex.join(argv)} failed on the node: {said}")
        return str(done["stdout"])

    def _show(self, unit: str) -> dict[str, str]:
        said = self._command("systemctl", "show", unit, "--property=SubState,Result,ExecMainStatus")
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    def _forget(self, unit: str) -> None:
        self._command("systemctl", "stop", unit, check=False)
        self._command("systemctl", "reset-failed", unit, check=False)

    def _start(self, unit: str, log: str, argv: list[str], env: dict[str, str], user: str) -> None:
        self._forget(unit)
        self._command("truncate", "--size=0", log)
        settings = [f"--setenv={name}={value}" for name, value in env.items()]
        self._command(
            "systemd-run", "--quiet", f"--unit={unit}", "--property=RemainAfterExit=yes",
            f"--property=StandardOutput=append:{log}", "--property=StandardError=inherit",
            f"--uid={user}", *settings, *argv,
        )  # fmt: skip

    def _follow(self, unit: str, log: str) -> dict[str, str]:
        """Print the last line when it is a new one, until the unit has ended."""
        pause, last = FIRST_LOOK_S, ""
        while (shown := self._show(unit))["SubState"] in {"running", "start", "start-pre"}:
            time.sleep(pause)
            pause = min(LOOK_S, 2 * pause)
            line = self._command("tail", "-n", "1", log).strip()
            if line and line != last:
                self._say(line)
                last = line
        return shown

    def _say(self, line: str) -> None:
        Display().display(f"{self._task_vars.get('inventory_hostname')}: {line}")
