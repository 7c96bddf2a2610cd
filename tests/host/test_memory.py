"""Memory admission: a start is let through, helped or refused; a living engine's cache stays."""

from __future__ import annotations

import argparse

import pytest

from twinspark.host import memory
from twinspark.host.__main__ import main
from twinspark.host.memory import decide, engines, run

GIB = 1024 * 1024


def _proc(tmp_path, *, free, available, engine=False):
    """Write a /proc with this process (77) below a shell (70), and perhaps an engine."""
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {122 * GIB} kB\nMemFree: {free * GIB} kB\nMemAvailable: {available * GIB} kB\n"
    )
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys/vm/drop_caches").write_text("0\n")
    processes = {70: (1, "sh\0-c\0vllm serve --config x"), 77: (70, "python3\0-m\0twinspark.host")}
    if engine:
        processes[90] = (1, "/opt/twinspark/current/venv/bin/vllm\0serve\0--config\0x")
    for process, (parent, words) in processes.items():
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "cmdline").write_text(words)
        (tmp_path / str(process) / "stat").write_text(f"{process} (a) b) S {parent} 0 0")
    return tmp_path


def _args(proc, *more):
    parser = argparse.ArgumentParser()
    memory.add_arguments(parser)
    return parser.parse_args(["--need", "100", "--proc", str(proc), "--wait", "0", *more])


@pytest.fixture(autouse=True)
def _own_process(monkeypatch):
    monkeypatch.setattr(memory.os, "getpid", lambda: 77)


def test_admission__enough_free__starts_and_drops_nothing(tmp_path):
    assert run(_args(_proc(tmp_path, free=110, available=118))) == 0
    assert (tmp_path / "sys/vm/drop_caches").read_text() == "0\n"


def test_admission__page_cache__is_dropped_once_then_refused_when_that_did_not_help(
    tmp_path, capsys
):
    assert run(_args(_proc(tmp_path, free=20, available=118))) == 1
    assert (tmp_path / "sys/vm/drop_caches").read_text() == "1\n"
    assert "it is not page cache" in capsys.readouterr().out


def test_admission__dry_run__drops_nothing(tmp_path):
    assert run(_args(_proc(tmp_path, free=20, available=118), "--dry-run")) == 0
    assert (tmp_path / "sys/vm/drop_caches").read_text() == "0\n"


def test_admission__living_engine__refuses_and_keeps_its_cache(tmp_path, capsys):
    assert run(_args(_proc(tmp_path, free=20, available=118, engine=True))) == 1
    assert (tmp_path / "sys/vm/drop_caches").read_text() == "0\n"
    assert "process 90" in capsys.readouterr().out


def test_admission__cache_not_writable__could_not_run(tmp_path):
    proc = _proc(tmp_path, free=20, available=118)
    (proc / "sys/vm/drop_caches").unlink()
    (proc / "sys/vm/drop_caches").mkdir()
    assert run(_args(proc)) == 2


def test_engines__own_start_and_its_parents_are_none(tmp_path):
    assert engines(_proc(tmp_path, free=1, available=1), 77) == ()


def test_engines__a_file_s_name_or_a_shell_that_speaks_of_one_is_none(tmp_path):
    proc = _proc(tmp_path, free=1, available=1)
    for process, words in {
        91: "vim\0notes on vllm serve flags.md\0",
        92: "VLLM::Worker_TP0\0",
    }.items():
        (proc / str(process)).mkdir()
        (proc / str(process) / "cmdline").write_text(words)
    assert engines(proc, 77) == (92,)


@pytest.mark.parametrize("text", [None, "", "MemTotal: 1 kB\n"])
def test_admission__memory_is_not_told__could_not_run(tmp_path, capsys, text):
    proc = _proc(tmp_path, free=110, available=118)
    (proc / "meminfo").unlink() if text is None else (proc / "meminfo").write_text(text)
    assert main(["memory", "--need", "100", "--proc", str(proc)]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), "meminfo" in said) == (1, True)


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "much"])
def test_admission__no_amount__is_refused(tmp_path, capsys, word):
    with pytest.raises(SystemExit) as stopped:
        main(["memory", "--proc", str(tmp_path), "--need", word])
    assert stopped.value.code == 2
    assert f"argument --need: invalid amount value: '{word}'" in capsys.readouterr().err


def test_decide__held_by_others__says_how_to_look():
    held = decide({"MemFree": 20 * GIB, "MemAvailable": 30 * GIB}, 100, (), dropped=False)
    assert held.action == "refuse"
    assert "ps aux --sort=-rss" in held.reason


def test_admission__of_a_cpu_engine__page_cache_gives_way_by_itself(tmp_path):
    proc = _proc(tmp_path, free=20, available=118)
    assert run(_args(proc, "--of", "available")) == 0
    assert (tmp_path / "sys/vm/drop_caches").read_text() == "0\n"
    short = argparse.Namespace(**{**vars(_args(proc, "--of", "available")), "need": 119.0})
    assert run(short) == 1
