"""Waiting for the engine: what it says meanwhile, and when there is nothing to wait for."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from twinspark.host import ready
from twinspark.host.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = "vllm-deepseek-mxfp4@lab-cpu.service"


class Engine(BaseHTTPRequestHandler):
    """Answers /health with 503, and with 200 once it was asked `late` times."""

    late = 2
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200 if self.asked > self.late else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Engine.asked, Engine.late = 0, 2
    server = HTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/health"
    server.shutdown()
    server.server_close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl and a journalctl that print the files `state` and `log`."""
    for name, file in (("systemctl", "state"), ("journalctl", "log")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexec cat {tmp_path / file}\n")
        program.chmod(0o755)
    (tmp_path / "state").write_text("ActiveState=active\nNRestarts=0\n")
    (tmp_path / "log").write_text("Loading safetensors shards: 12%\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ready, "LOOK_S", 0.01)
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_ready__tells_each_new_line_once_until_it_answers(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ready", "--url", url, "--unit", UNIT]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 s: Loading safetensors shards: 12%", "answers after 0 s",
    ]  # fmt: skip


def test_ready__does_not_wait_for_a_unit_that_has_failed(
    url: str, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Engine.late = 10**6
    (machine / "state").write_text("ActiveState=failed\nNRestarts=10\n")
    (machine / "log").write_text("first\nRuntimeError: NCCL\n")
    assert main(["ready", "--url", url, "--unit", UNIT]) == 1
    said = capsys.readouterr().out
    assert "RuntimeError: NCCL" in said
    assert said.strip().endswith(
        f"{UNIT} has failed, started again 10 times: its log's end stands above"
    )


def test_ready__ends_with_its_time_and_says_how_often_it_was_started(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "state").write_text("ActiveState=activating\nNRestarts=2\n")
    nobody = "http://127.0.0.1:9/health"
    assert main(["ready", "--url", nobody, "--unit", UNIT, "--timeout", "0.05"]) == 1
    said = capsys.readouterr().out
    assert "0 s: started again 2 times: Loading safetensors shards: 12%" in said
    assert "gives no answer within 0 s" in said


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_ready__refuses_a_time_that_is_none(text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ready", "--url", "http://x", "--unit", UNIT, "--timeout", text])
    assert ended.value.code == 2
