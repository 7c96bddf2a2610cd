"""Which guard sees which fault inside the GPU engine: one API server, faults switched as it runs.

Usage: fault_arms.py CHECKPOINT OUT.json, in the environment of `session.sh`. The checkpoint is
random, so guards that know an answer have nothing to say; those that compare the server with itself
or read its log do. There is no systemd here: two stand-ins say the server's pid and show its log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
PORT = 8469
BOOT_S = 430  # seconds; 80 with warm JIT caches
SPEC = {"method": "dspark", "num_speculative_tokens": 5}
# a fault, the guards that run, and the one that must fail
ARMS = (
    ("none", "throughput", ""),  # three runs: the throughput guard then knows this server's pace
    ("none", "throughput", ""),
    ("none", "throughput", ""),
    ("none", "throughput,determinism,logs", ""),
    ("slow_indexer", "throughput,logs", "throughput"),
    ("none", "throughput,logs", ""),
    ("stale_rows", "throughput,determinism,logs", "logs"),
)


def render(work: Path, model: str) -> Path:
    """The three files that a node's guard reads."""
    etc = work / "etc"
    etc.mkdir()
    lines = {
        "model": model, "served-model-name": "random", "host": "127.0.0.1", "port": PORT,
        "kv-cache-dtype": "fp8_ds_mla", "block-size": 256, "max-model-len": 131_072,
        "max-num-seqs": 4, "max-num-batched-tokens": 2048, "gpu-memory-utilization": 0.2,
        "kv-cache-memory-bytes": 6 << 30, "seed": 0, "speculative-config": json.dumps(SPEC),
        "compilation-config": json.dumps({"cudagraph_mode": "FULL_AND_PIECEWISE"}),
        "kernel-config": json.dumps({"enable_flashinfer_autotune": False}),
    }  # fmt: skip
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())
    (etc / "serve.yaml").write_text(text)
    (etc / "engine.env").write_text("")
    (etc / "node.env").write_text("TWINSPARK_VARIANT=h200\nTWINSPARK_RANK=0\n")
    return etc


def stand_ins(work: Path, pid: int) -> Path:
    """`systemctl` and `journalctl` for one process and its log."""
    programs = work / "bin"
    programs.mkdir()
    texts = {
        "systemctl": f'#!/bin/sh\ncase "$*" in *MainPID*) echo {pid} ;; *) echo here ;; esac\n',
        "journalctl": f"#!/bin/sh\ncat {work}/log\n",
    }
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def plugin(work: Path) -> Path:
    """A folder that looks like an installed distribution."""
    folder = work / "plugin"
    about = folder / "twinspark_gpu_faults-0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(HERE / "faults/twinspark_gpu_faults.py", folder)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: twinspark-gpu-faults\nVersion: 0\n"
    )
    entry = "[vllm.general_plugins]\ntwinspark_gpu_faults = twinspark_gpu_faults:register\n"
    (about / "entry_points.txt").write_text(entry)
    return folder


def start(work: Path, etc: Path) -> subprocess.Popen[bytes]:
    """The server, once it is healthy."""
    paths = [str(plugin(work)), os.environ["PYTHONPATH"]]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths), "TWINSPARK_GPU_FAULTS": str(work / "fault"),
        "TWINSPARK_KERNELS": "triton", "TWINSPARK_REPORT_DIR": str(work / "overlay"),
        "VLLM_LOGGING_LEVEL": "INFO",
    }  # fmt: skip
    with (work / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve",
             "--config", str(etc / "serve.yaml")],
            env=env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
                return server
        except OSError:
            time.sleep(1)
    stop(server)
    raise SystemExit(f"no server: {(work / 'log').read_text(errors='replace')[-6000:]}")


def stop(server: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, sign)
            server.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run_guards(work: Path, etc: Path, names: str, seed: int) -> list[dict]:
    """The project's own command on this node; its checks."""
    report = work / f"report-{seed}.json"
    command = [
        sys.executable, "-c", "import sys; from twinspark import cli; sys.exit(cli.main())",
        "battery", "quick", "--foreground", "--etc", str(etc), "--only", names,
        "--state", str(work / "state"), "--json", str(report),
        "--seed", str(seed), "--timeout", "60",
    ]  # fmt: skip
    env = os.environ | {"PATH": f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=200
    )
    if not report.exists():
        raise SystemExit(
            f"guard: exit {done.returncode}: {done.stdout[-1500:]} {done.stderr[-2500:]}"
        )
    return [c for node in json.loads(report.read_text())["nodes"] for c in node["checks"]]


def judge(fault: str, expected: str, checks: list[dict]) -> dict:
    failed = sorted({check["name"] for check in checks if check["ok"] is False})
    guards = {name.partition(".")[0] for name in failed}
    seen = expected in guards if expected else not guards - {"determinism"}
    row = {"fault": fault, "expected": expected, "failed": failed, "as_expected": seen}
    keep = ("name", "ok", "expected", "actual", "detail")
    return row | {"checks": [{key: check[key] for key in keep} for check in checks]}


def main() -> int:
    model, out = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that `finally` stops the server
    rows = []
    with tempfile.TemporaryDirectory(prefix="twinspark-faults-") as name:
        work = Path(name)
        (work / "fault").write_text("none")
        etc = render(work, model)
        server = start(work, etc)
        try:
            stand_ins(work, server.pid)
            for number, (fault, names, expected) in enumerate(ARMS):
                (work / "fault").write_text(fault)
                row = judge(fault, expected, run_guards(work, etc, names, 500 + number))
                rows.append(row)
                word = "as expected" if row["as_expected"] else "NOT AS EXPECTED"
                print(f"{fault:14s} {word:16s} failed: {row['failed'] or '-'}", flush=True)
        finally:
            stop(server)
            (Path(out).parent / "fault-server.log").write_bytes(
                (work / "log").read_bytes()[-200_000:]
            )
            Path(out).write_text(json.dumps({"rows": rows, "date": time.strftime("%F")}, indent=1))
    return 0 if all(row["as_expected"] for row in rows) and len(rows) == len(ARMS) else 1


if __name__ == "__main__":
    sys.exit(main())
