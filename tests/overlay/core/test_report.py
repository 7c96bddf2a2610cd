"""The per-process report: its file, its role, its counters."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

import pytest

from twinspark import patches, process
from twinspark.patching import State
from twinspark.report import Report

PATCH = patches.load()[0]


def only_file(folder):
    (path,) = folder.glob("*.json")
    return path, json.loads(path.read_text())


def test_report__is_rewritten_on_every_change(tmp_path):
    report = Report("0.27.1+cpu", "0.1.0", tmp_path)
    report.patch(PATCH, State.ARMED, "waits")
    report.patch(PATCH, State.APPLIED, "installed")
    report.kernel("zero_rows", "triton", "compiled")
    path, document = only_file(tmp_path)
    assert path.name == f"{document['role']}-{os.getpid()}.json"
    assert document["schema"] == "twinspark.overlay/1"
    assert (document["vllm"], document["twinspark"]) == ("0.27.1+cpu", "0.1.0")
    assert [(p["id"], p["state"]) for p in document["patches"]] == [(PATCH.id, "applied")]
    assert document["patches"][0]["targets"] == list(PATCH.targets)
    assert document["kernels"] == [{"op": "zero_rows", "kernel": "triton", "reason": "compiled"}]


def test_report__batch_writes_once(tmp_path):
    report = Report("0", "0", tmp_path)
    with report.batch():
        report.patch(PATCH, State.ARMED, "waits")
        assert not list(tmp_path.glob("*.json"))
    assert only_file(tmp_path)[1]["patches"][0]["state"] == "armed"


def test_report__first_count_is_written_at_once_and_facts_too(tmp_path):
    report = Report("0", "0", tmp_path)
    assert report.count("nan_rows", 3) == 3
    report.fact("kv_layout", {"page": 37440})
    document = only_file(tmp_path)[1]
    assert document["counters"] == {"nan_rows": 3}
    assert document["facts"] == {"kv_layout": {"page": 37440}}
    assert report.count("nan_rows") == 4


def test_report__forked_child_writes_its_own(tmp_path):
    report = Report("0", "0", tmp_path)
    report.patch(PATCH, State.ARMED, "waits")
    os.register_at_fork(after_in_child=report.after_fork)
    child = multiprocessing.get_context("fork").Process(target=int, name="VllmWorker-1")
    child.start()
    child.join()
    report.directory = None  # later forks of this test process write nothing
    document = json.loads((tmp_path / f"worker-{child.pid}.json").read_text())
    assert (document["role"], document["rank"], document["ppid"]) == ("worker", 1, os.getpid())
    assert document["patches"][0]["state"] == "armed"


@pytest.mark.parametrize(
    ("name", "argv", "headless", "expected"),
    [
        ("MainProcess", ["/venv/bin/vllm", "serve", "--config", "c"], False, "api_server"),
        ("MainProcess", ["/venv/bin/vllm", "serve", "--config", "c"], True, "headless"),
        ("MainProcess", ["vllm", "serve", "m", "--headless"], False, "headless"),
        ("EngineCore", ["vllm", "serve"], False, "engine_core"),
        ("EngineCore_DP0", ["vllm", "serve"], False, "engine_core"),
        ("VllmWorker-1", ["vllm", "serve"], True, "worker"),
        ("ApiServer_0", ["vllm", "serve"], False, "api_server"),
        ("MainProcess", ["/x/models/registry.py"], False, "other"),
        ("Process-7", ["vllm", "serve"], False, "other"),
        ("MainProcess", [], False, "other"),
    ],
)
def test_role__from_name_argv_and_config(name, argv, headless, expected):
    config = process.Config("c", "0", headless, None)
    assert process.role(name, argv, config) == expected


def test_config__is_read_as_the_server_reads_it(tmp_path, monkeypatch):
    path = tmp_path / "serve.yaml"
    path.write_text("model: m\nheadless: true\nnode-rank: 1\n")
    for argv in (["vllm", "serve", "--config", str(path)], ["vllm", f"--config={path}"]):
        config = process.read_config(argv)
        assert config
        assert (config.headless, config.node_rank, len(config.sha256)) == (True, 1, 64)
    monkeypatch.delenv("TWINSPARK_RANK", raising=False)
    assert process.rank("MainProcess", config) == 1
    monkeypatch.setenv("TWINSPARK_RANK", "0")
    assert process.rank("MainProcess", config) == 0
    assert process.rank("VllmWorker-1", config) == 1
    assert process.read_config(["vllm", "--config", str(tmp_path / "gone")]) is None
    assert process.read_config(sys.argv[:1]) is None
