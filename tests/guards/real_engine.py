"""vLLM's CPU build on loopback, for proofs of the guards: with the fault plugin or without.

Each node is a process group of its own. Its configuration lies in a folder that looks like a
release, and `tools` stands in for `systemctl` and `journalctl`, so that every guard of a battery
can run beside an engine that no unit started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
VARIANT = "matrix"
START_S = 1500  # 30 s on an idle machine
NGRAM = {
    "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 1,
}  # fmt: skip
TOOL = """\
#!/bin/sh
# stands in for {name}: the engine of {work} was not started by a unit
case "$*" in
*MainPID*) echo {pid} ;;
*InvocationID*) echo this ;;
*) cat {log} ;;
esac
"""


@dataclass(slots=True)
class Engine:
    """One engine.

    Attributes:
        venv: Environment with vLLM; with the overlay where that is to run too.
        model: Recall checkpoint, with its oracle.
        work: Folder for configuration, logs and caches.
        nodes: 1, or 2 with one worker each.
        faults: Whether the fault plugin is loaded.
        port: Of the API; the master port is 21,100 above.
        step_tokens: Token budget of a step.
    """

    venv: Path
    model: Path
    work: Path
    nodes: int = 1
    faults: bool = True
    port: int = 8461
    step_tokens: int = 2048
    env: dict[str, str] = field(default_factory=dict)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def switch(self, fault: dict[str, Any]) -> None:
        """Switch faults, read by the plugin before each step."""
        part = self.work / "faults.part"
        part.write_text(json.dumps(fault))
        part.replace(self.work / "faults.json")

    def plugin(self) -> Path:
        """A folder that looks like an installed distribution: reached through PYTHONPATH alone."""
        folder = self.work / "plugin"
        about = folder / "twinspark_faults-0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "fault_plugin/twinspark_faults.py", folder)
        metadata = "Metadata-Version: 2.1\nName: twinspark-faults\nVersion: 0\n"
        (about / "METADATA").write_text(metadata)
        entry = "[vllm.general_plugins]\ntwinspark_faults = twinspark_faults:register\n"
        (about / "entry_points.txt").write_text(entry)
        return folder

    def etc(self, rank: int) -> Path:
        """The rendered configuration of one node."""
        return self.work / "releases/proof" / f"etc{rank}"

    def log(self, rank: int) -> Path:
        return self.work / f"log{rank}"

    def serve(self, rank: int) -> dict[str, object]:
        """Lines of serve.yaml."""
        lines: dict[str, object] = {
            "model": self.model, "served-model-name": "recall", "host": f"127.0.0.{rank + 1}",
            "port": self.port, "enforce-eager": "true", "dtype": "float32", "block-size": 32,
            "max-model-len": 32768, "max-num-seqs": 16,
            "max-num-batched-tokens": self.step_tokens, "enable-prompt-tokens-details": "true",
        }  # fmt: skip
        if self.nodes == 1:
            return lines | {"speculative-config": f"'{json.dumps(NGRAM)}'"}
        lines |= {
            "tensor-parallel-size": 2, "distributed-executor-backend": "mp", "nnodes": 2,
            "node-rank": rank, "master-addr": "127.0.0.1", "master-port": self.port + 21_100,
        }  # fmt: skip
        return lines | ({"headless": "true"} if rank else {})

    def render(self, rank: int) -> dict[str, str]:
        """Write one node's configuration; its environment."""
        etc = self.etc(rank)
        etc.mkdir(parents=True, exist_ok=True)
        reports = self.work / f"reports{rank}"
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir()
        engine = {
            "TWINSPARK_REPORT_DIR": str(reports), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CACHE_ROOT": str(self.work / "cache"), **self.env,
        }  # fmt: skip
        node = {
            "TWINSPARK_VARIANT": VARIANT, "TWINSPARK_RANK": str(rank),
            "TWINSPARK_NNODES": str(self.nodes), "VLLM_HOST_IP": f"127.0.0.{rank + 1}",
            "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        for name, lines in (("engine.env", engine), ("node.env", node)):
            (etc / name).write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        serve = "".join(f"{key}: {value}\n" for key, value in self.serve(rank).items())
        (etc / "serve.yaml").write_text(serve)
        return engine | node

    def start(self) -> None:
        """Start all nodes and wait for the API."""
        self.work.mkdir(parents=True, exist_ok=True)
        extra: dict[str, str] = {}
        if self.faults:
            self.switch({})
            fault = str(self.work / "faults.json")
            extra = {"PYTHONPATH": str(self.plugin()), "TWINSPARK_FAULTS": fault}
        self.children.clear()
        for rank in range(self.nodes):
            command = [self.venv / "bin/vllm", "serve", "--config", self.etc(rank) / "serve.yaml"]
            # PYTHONPATH is how these tests are found; the engine has its own
            env = {**os.environ, **self.render(rank), "PYTHONPATH": "", **extra}
            with self.log(rank).open("wb") as log:
                child = subprocess.Popen(
                    command, env=env, stdout=log, stderr=log, start_new_session=True
                )
            self.children.append(child)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.alive():
            if self.health() == "200":
                return
            time.sleep(1)
        raise SystemExit(f"the engine did not start: see {self.log(0)}")

    def alive(self) -> bool:
        """Whether the head's process runs."""
        return bool(self.children) and self.children[0].poll() is None

    def health(self) -> str:
        """What `/health` answers now: its status, or why there is none."""
        try:
            return str(httpx.get(f"{self.url}/health", timeout=5).status_code)
        except httpx.HTTPError as error:
            return type(error).__name__

    def wait_idle(self, seconds: float = 300.0) -> None:
        """Wait until the engine has finished what earlier requests left it to do."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
                busy = [x for x in lines if x.startswith("vllm:num_requests_")]
                if busy and all(float(line.rpartition(" ")[2]) == 0 for line in busy):
                    return
            time.sleep(1)
        raise SystemExit("the engine did not become idle")

    def tools(self) -> Path:
        """Programs in place of `systemctl` and `journalctl`, for the PATH of a battery."""
        folder = self.work / "tools"
        folder.mkdir(exist_ok=True)
        for name in ("systemctl", "journalctl"):
            values = {"name": name, "work": self.work, "pid": self.children[0].pid}
            (folder / name).write_text(TOOL.format(**values, log=self.log(0)))
            (folder / name).chmod(0o755)
        return folder

    def below(self, rank: int) -> dict[int, str]:
        """Pid and title of one node's processes."""
        found = {self.children[rank].pid: "vllm serve"}
        todo = list(found)
        for pid in todo:
            shown = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)],
                                   capture_output=True, text=True, check=False).stdout  # fmt: skip
            for line in shown.splitlines():
                child, _, title = line.strip().partition(" ")
                found[int(child)] = title
                todo.append(int(child))
        return found

    def signal(self, rank: int, sign: signal.Signals, title: str = "") -> None:
        """Send a signal to one node's processes, or those whose title holds a word."""
        for pid, name in self.below(rank).items():
            if title in name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)

    def stop(self) -> None:
        """End every process of every node; workers can outlive their parent."""
        for child in self.children:
            for sign in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, sign)
                if sign is not signal.SIGCONT:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(30)
