"""The battery as a process: detached, one at a time, stoppable, resumable."""

from __future__ import annotations

import os
import signal
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from twinspark.guards import battery, battery_cli, report, runner, state
from twinspark.guards.battery import BatteryError, Folder
from twinspark.guards.system import System

if TYPE_CHECKING:
    from pathlib import Path

    from guards.conftest import Machine
    from guards.fake_server import FakeServer
    from twinspark.guards.context import Context

Command = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "state/battery")


@pytest.fixture
def command(machine: Machine, tmp_path: Path, folder: Folder) -> Command:
    """`twinspark battery` with the fake machine's configuration; real processes."""

    def one(*words: str) -> int:
        parser = ArgumentParser()
        battery_cli.add_arguments(parser)
        fixed = ["--etc", str(machine.etc), "--state", str(tmp_path / "state"), "--timeout", "10"]
        return battery_cli.run(parser.parse_args([*words, *fixed]))

    yield one
    if folder.running():
        battery.stop(folder)


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def done(folder: Folder) -> list[str]:
    now = folder.read()
    return now.done if now else []


def test_battery__runs_in_a_session_of_its_own_and_alone(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.hang_s = 1.5
    assert command("quick", "--only", "health,first_token") == 0
    until(lambda: "health" in done(folder))
    pid = folder.holder()
    assert os.getsid(pid) == os.getpgid(pid) == pid != os.getsid(0)
    assert command("status") == 0
    assert command("full", "--only", "health") == 2  # one at a time
    until(lambda: not folder.running())
    assert command("status") == 0
    (node,) = report.read(folder.report).nodes
    assert node.battery == "quick"
    assert folder.report.with_suffix(".html").exists()
    assert [line.battery for line in state.lines(folder.path.parent)] == ["quick"]


def test_battery__is_known_of_as_soon_as_it_has_started(
    command: Command, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults.hang_s = 1.5
    for only in ("first_token", "recall"):  # the second time, the first's progress lies there
        capsys.readouterr()
        assert command("quick", "--only", only) == 0
        assert command("status") == 0
        assert f"0 of 1 guards, now {only}" in capsys.readouterr().out
        assert command("stop") == 0


def test_battery__that_ends_while_it_is_asked_for_has_finished(
    command: Command, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("quick", "--only", "health", "--wait") == 0
    finished = folder.read()
    assert finished is not None
    folder.write(replace(finished, status=None))

    def ends(self: Folder) -> bool:
        self.write(finished)
        return False

    monkeypatch.setattr(Folder, "running", ends)
    assert command("status") == 0


def test_battery__that_dies_at_once_is_no_pass(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("quick", "--only", "health", "--wait") == 0
    monkeypatch.setattr(battery, "_START", "raise SystemExit(3)")
    assert command("quick", "--only", "health", "--wait") == 2
    assert command("status") == 2


def test_battery__fails_with_the_status_of_its_guards(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.max_model_len = 1
    assert command("quick", "--only", "health", "--wait") == 1
    assert command("status") == 1
    assert "health.model wrong" in state.lines(folder.path.parent)[0].failed


def test_battery__goes_on_where_it_was_stopped(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.hang_s = 5.0
    command("quick", "--only", "health,first_token")
    until(lambda: "health" in done(folder))
    assert command("stop") == 0
    assert command("status") == 2  # interrupted
    server.faults.hang_s = 0.0
    assert command("resume", "--wait") == 0
    assert done(folder) == ["health", "first_token"]
    assert [path for path, _ in server.requests].count("/health") == 1
    now = folder.read()
    assert now is not None
    assert now.present_seed != now.seed  # the interrupted guard's prompts are warm by now
    assert command("resume") == 2  # nothing is left


def test_battery__is_free_again_after_a_kill(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.hang_s = 5.0
    command("quick", "--only", "health,first_token")
    until(lambda: "health" in done(folder))
    os.kill(folder.holder(), signal.SIGKILL)
    until(lambda: not folder.running())
    assert command("status") == 2
    server.faults.hang_s = 0.0
    assert command("quick", "--only", "health", "--wait") == 0


def test_battery__is_not_resumed_on_other_versions(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.hang_s = 5.0
    command("quick", "--only", "health,first_token")
    until(lambda: "health" in done(folder))
    command("stop")
    before = folder.read()
    assert before is not None
    newer = replace(before.fingerprint, driver="999")
    folder.write(replace(before, fingerprint=newer))
    assert command("resume") == 2


def test_battery__lists_its_guards_without_being_told_what(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--list") == 0
    assert "neighbours" in capsys.readouterr().out
    assert command() == 2
    assert "say what: quick, full" in capsys.readouterr().err


def test_battery__says_when_none_has_run(command: Command) -> None:
    assert command("status") == 2
    assert command("stop") == 2
    assert command("resume") == 2
    assert command("history") == 0


def test_battery__for_a_timer_leaves_a_running_one_alone(
    command: Command, folder: Folder, server: FakeServer
) -> None:
    server.faults.hang_s = 3.0
    command("quick", "--only", "health,first_token")
    pid = folder.holder()
    assert command("quick", "--only", "health", "--foreground", "--unless-running") == 0
    assert folder.running()
    assert folder.holder() == pid
    until(lambda: not folder.running())
    assert done(folder) == ["health", "first_token"]
    assert command("quick", "--only", "health", "--foreground", "--unless-running") == 0
    assert done(folder) == ["health"]  # with the way free it runs, and here


@pytest.mark.parametrize(
    ("age", "refusals", "asked"), [(100.0, 2, 3), (100.0, 0, 1), (9000.0, 5, 0), (None, 5, 0)]
)
def test_settle__waits_for_a_young_engine_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch, age: float | None, refusals: int, asked: int
) -> None:
    tries: list[Context] = []
    hours = None if age is None else age / 3600
    monkeypatch.setattr(System, "uptime_hours", lambda *_: hours)
    monkeypatch.setattr(runner, "answers", lambda one: tries.append(one) or len(tries) > refusals)
    monkeypatch.setattr(battery_cli, "SETTLE_S", 0.01)
    battery_cli._settle(context, 2700.0)
    assert len(tries) == asked


def test_answers__is_what_the_health_endpoint_says(context: Context, server: FakeServer) -> None:
    assert runner.answers(context)
    server.stop()
    assert not runner.answers(context)


def test_battery__that_cannot_be_written_down_is_not_started(
    command: Command, folder: Folder, server: FakeServer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    option = "--json"
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path / "file/out", "not below a folder"), (tmp_path, "a folder")):
        assert command("quick", "--only", "health", option, str(path)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert f"twinspark battery: {path}: {why}" in said.err
        assert len(said.err.splitlines()) == 1
    assert not folder.path.exists()
    assert server.requests == []


def test_battery__complains_on_standard_error(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("stop") == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "twinspark battery: no battery runs\n")


def test_battery__in_the_foreground_leaves_its_words_in_the_log(
    command: Command, folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("quick", "--only", "health", "--wait") == 0
    (folder.path.parent / state.HISTORY_FILE).unlink()
    (folder.path.parent / state.HISTORY_FILE).mkdir()
    assert command("quick", "--only", "first_token", "--foreground") == 0
    said = capsys.readouterr()
    assert "no history kept" in said.err
    assert folder.report.exists()  # whatever happens to the history
    assert command("log") == 0
    log = capsys.readouterr().out
    assert "--only first_token" in log.splitlines()[0]
    for words in ("pass        first_token", "twinspark guards", "no history kept"):
        assert words in log
    assert "health" not in log


def test_battery__that_has_left_no_log_says_so(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("log") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "battery/log: No such file" in said.err


def test_lock__is_refused_while_held(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    held = folder.lock()
    folder.claim(held, 4711)
    assert folder.running()
    with pytest.raises(BatteryError, match="4711"):
        folder.lock()
    os.close(held)
    assert not folder.running()
