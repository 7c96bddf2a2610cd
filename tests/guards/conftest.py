"""A fake server, a fake machine, and a context that joins them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from guards.fake_server import FakeServer
from twinspark.guards import recall, runner
from twinspark.guards.context import Context, Depth
from twinspark.guards.exam import RecallExam
from twinspark.guards.registry import GUARDS
from twinspark.guards.settings import load
from twinspark.guards.system import System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from twinspark.guards.model import Check

SMALL = Depth(5, 512, 3, 8, (8,), (256, 512))
BOOT = 1_700_000_000
CONFIG = "/opt/twinspark/current/etc/lab-cpu/serve.yaml"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer().start()
    yield fake
    fake.stop()


ENGINE_ENV = {"TWINSPARK_REPORT_DIR": "/run/twinspark/overlay", "OMP_NUM_THREADS": "1"}
NODE_ENV = {"TWINSPARK_VARIANT": "lab-cpu", "TWINSPARK_RANK": "0", "TWINSPARK_NNODES": "1"}
SERVE = """\
model: /srv/models/recall
served-model-name: recall
host: 127.0.0.1
port: {port}
block-size: 32
max-model-len: 32768
max-num-seqs: 16
max-num-batched-tokens: 4096
"""


def as_lines(env: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in env.items())


class Machine:
    """A tree in place of `/`, with processes, a unit and overlay reports."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.etc = root, root / "opt/twinspark/releases/r1/etc/lab-cpu"
        self.reports = root / "run/twinspark/overlay"
        for folder in (self.etc, self.reports, root / "proc", root / "etc"):
            folder.mkdir(parents=True)
        (root / "proc/stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\n")
        (root / "etc/os-release").write_text('PRETTY_NAME="Debian 12"\n')
        (root / "opt/twinspark/current").symlink_to("releases/r1")
        self.write_etc("serve.yaml", SERVE.format(port=port))
        self.write_etc("engine.env", as_lines(ENGINE_ENV))
        self.write_etc("node.env", as_lines(NODE_ENV))
        self.process(100, 1, ["python", "vllm", "serve", "--config", CONFIG])
        self.process(101, 100, ["python", "-c", "from multiprocessing.resource_tracker import x"])
        self.process(102, 100, ["VLLM::EngineCore"])
        self.process(103, 102, ["VLLM::Worker"])
        self.main(100)
        for pid, role in ((100, "api_server"), (102, "engine_core"), (103, "worker")):
            self.report(pid, role)

    def write_etc(self, name: str, text: str) -> None:
        (self.etc / name).write_text(text)

    def main(self, pid: int) -> None:
        program = self.root / "systemctl"
        program.write_text(f"#!/bin/sh\necho {pid}\n")
        program.chmod(0o755)

    def process(self, pid: int, ppid: int, argv: list[str], age_ticks: int = 500) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")
        fields = ["S", str(ppid), *["0"] * 17, str(age_ticks), "0"]
        (folder / "stat").write_text(f"{pid} (odd) name) {' '.join(fields)}\n")
        self.environ(pid, ENGINE_ENV | NODE_ENV)

    def environ(self, pid: int, env: dict[str, str]) -> None:
        text = "\0".join(f"{key}={value}" for key, value in env.items())
        (self.root / "proc" / str(pid) / "environ").write_text(text)

    def report(self, pid: int, role: str, **changes: Any) -> None:
        sha = load(self.etc).sha256["serve.yaml"]
        body = {
            "schema": "twinspark.overlay/1",
            "pid": pid,
            "ppid": 1,
            "role": role,
            "rank": 0,
            "time": float(BOOT + 60),
            "vllm": "0.27.1+cpu",
            "twinspark": "0.1.0",
            "argv": [],
            "config": {"path": "x", "sha256": sha},
            "patches": [
                {"id": "exit-status", "state": "applied", "reason": "", "targets": []},
                {"id": "f12", "state": "skipped", "reason": "no GPU", "targets": []},
            ],
            "kernels": [],
        } | changes
        (self.reports / f"{role}-{pid}.json").write_text(json.dumps(body))

    @property
    def system(self) -> System:
        return System(self.root, str(self.root / "systemctl"))


@pytest.fixture
def machine(tmp_path: Path, server: FakeServer) -> Machine:
    return Machine(tmp_path / "root", server.http.server_port)


@pytest.fixture
def context(machine: Machine) -> Context:
    oracle = recall.Oracle()
    return Context(
        node="spark1",
        settings=load(machine.etc),
        system=machine.system,
        exam=RecallExam(oracle),
        oracle=oracle,
        depth=SMALL,
        seed=int(time.time()) + os.getpid(),
        timeout=5.0,
    )


@pytest.fixture
def run(context: Context) -> Callable[..., list[Check]]:
    """Run one guard by its name; keyword arguments change the context."""

    def one(name: str, **changes: Any) -> list[Check]:
        guard = next(guard for guard in GUARDS if guard.name == name)
        return runner.run_one(guard, replace(context, **changes))

    return one


def kinds(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.kind for check in checks}
