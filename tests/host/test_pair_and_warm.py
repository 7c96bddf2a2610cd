"""The collective between nodes, the mapped NCCL, and compiling before the first request."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from twinspark.host import note, warm
from twinspark.host.pair import bus_bandwidth, judge, mapped_nccl
from twinspark.host.parse import sort_key

ROOT = Path(__file__).parents[2]
GOOD = {"gbs": 22.7, "right": True, "library": "/x/libnccl.so.2", "nccl": "2.29.7"}


def test_bus_bandwidth__two_nodes__is_size_over_time():
    assert bus_bandwidth(64, 0.004, 2) == pytest.approx(16.777216)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"gbs": 2.1}, ["2.1 GB/s, at least 15 (docs/symptoms.md S10, S11)"]),
        ({"nccl": "2.28.9"}, ["NCCL 2.28.9 is mapped, 2.29.3 wanted (S07)"]),
        ({"right": False}, ["the sum is wrong"]),
    ],
)
def test_judge__says_each_fault(change, said):
    assert judge({**GOOD, **change}, 15.0, "2.29.3") == said


def test_mapped_nccl__is_read_from_the_process_not_from_the_package():
    maps = "7f r-xp 0 0 1 /venv/nvidia/nccl/lib/libnccl.so.2\n7f r--p 0 0 2 /lib/libc.so.6\n"
    assert mapped_nccl(maps) == "/venv/nvidia/nccl/lib/libnccl.so.2"
    assert mapped_nccl("7f20 r--p 0 0 2 /lib/libc.so.6\n") == ""


def test_lock__pins_nccl_past_the_slot_leak():
    lock = (ROOT / "env" / "locks" / "spark.lock").read_text(encoding="utf-8")
    pinned = re.search(r"(?m)^nvidia-nccl-cu13==(\S+)", lock)
    assert pinned
    assert sort_key(pinned[1]) >= (2, 29, 3)


@pytest.mark.vllm
def test_pair__two_processes_over_gloo__measure_each_other():
    python = os.environ.get("TWINSPARK_TORCH_PYTHON")
    if not python:
        pytest.skip("TWINSPARK_TORCH_PYTHON names no interpreter with torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "twinspark.host.pair", "--env", "/dev/null", "--master", "127.0.0.1"]
    command += ["--port", str(port), "--backend", "gloo", "--mib", "4", "--iterations", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "engine_overlay" / "src")}
    ranks = [
        subprocess.Popen(
            [*command, "--floor", floor, "--rank", str(rank)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for rank, floor in enumerate(("0", "1e9"))
    ]  # fmt: skip
    said = [json.loads(one.communicate(timeout=120)[0]) for one in ranks]
    assert [one.returncode for one in ranks] == [0, 1]
    assert all(one["right"] and one["gbs"] > 0 for one in said)
    assert "GB/s" in said[1]["wrong"][0]


FAKE_JIT = """
import os
class Spec:
    def build_and_load(self):
        if os.environ["FAULT"]:
            raise RuntimeError("nvcc fatal: Unsupported gpu architecture 'compute_121a'")
        open(os.environ["OUT"], "a").write("built ")
def gen():
    return Spec()
"""


def _warm(tmp_path, *, fault="", steps=("fakejit:gen",), release="r1", more=""):
    (tmp_path / "fakejit.py").write_text(FAKE_JIT)
    command = [
        sys.executable,
        "-m",
        "twinspark.host.warm",
        "--cache",
        str(tmp_path),
        "--release",
        release,
    ]
    for step in steps:
        command += ["--step", step]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    text = f"FAULT={fault}\nOUT={tmp_path}/out\n{more}"
    return subprocess.run(
        command, input=text, env=environment, check=False, capture_output=True, text=True
    )


def test_warm__compiles_once_a_release_with_the_engine_s_environment(tmp_path):
    assert "compiled: 1 of 1" in _warm(tmp_path).stdout
    assert "unchanged" in _warm(tmp_path).stdout
    assert (tmp_path / "out").read_text() == "built "
    assert "compiled: 1 of 1" in _warm(tmp_path, release="r2").stdout


def test_warm__a_compiler_s_failure__is_said_and_tried_again(tmp_path):
    failed = _warm(tmp_path, fault="yes")
    assert failed.returncode == 1
    assert "Unsupported gpu architecture" in failed.stdout
    assert "compiled: 1 of 1" in _warm(tmp_path).stdout


def test_warm__no_toolkit_and_no_module__needs_nothing(tmp_path):
    done = _warm(tmp_path, steps=("no_such_module:gen",))
    assert (done.returncode, "not needed" in done.stdout) == (0, True)


def test_warm__a_toolkit_but_no_module__is_a_wrong_release(tmp_path):
    done = _warm(tmp_path, steps=("no_such_module:gen",), more="CUDA_HOME=/usr/local/cuda\n")
    assert (done.returncode, "failed" in done.stdout) == (1, True)
    assert not (tmp_path / "warm.json").exists()


@pytest.mark.parametrize("torn", ["", "[]", '{"release": "r'])
def test_warm__torn_note__compiles_again_and_leaves_a_whole_one(tmp_path, torn):
    (tmp_path / "warm.json").write_text(torn)
    assert "compiled: 1 of 1" in _warm(tmp_path).stdout
    assert "unchanged" in _warm(tmp_path).stdout
    assert not list(tmp_path.glob(".warm*"))


def test_note__is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    note.write(tmp_path / "n.json", {"a": 1})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        note.write(tmp_path / "n.json", {"a": 2})
    assert note.read(tmp_path / "n.json") == {"a": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "/nowhere/warm.env"], "/nowhere/warm.env"),
        (["--step", "nocolon"], "argument --step: 'nocolon' is not module:function"),
    ],
)
def test_warm__bad_argument__is_one_line(tmp_path, words, said):
    command = [sys.executable, "-m", "twinspark.host.warm", "--cache", str(tmp_path)]
    done = subprocess.run(
        [*command, "--release", "r1", *words], check=False, capture_output=True, text=True
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert said in done.stderr.splitlines()[-1]


def test_warm__long_compilation__shows_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(warm, "TICK_SECONDS", 0.01)
    over = warm.threading.Event()
    teller = warm.threading.Thread(target=warm.tell, args=("x:y", tmp_path, over))
    teller.start()
    warm.time.sleep(0.1)
    over.set()
    teller.join()
    assert "warm: x:y: 0 s, 0 files, 0 MiB cached" in capsys.readouterr().out
