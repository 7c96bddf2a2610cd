"""Which guard sees which fault, on the real CPU engine: starts it, damages it, runs the guards.

    python tests/guards/fault_matrix.py --engine VENV --model CHECKPOINT --out FILE.json [--nodes 2]

The fault plugin reaches the engine through PYTHONPATH alone: nothing is installed. Truth label of
the result: emulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from twinspark.guards import cli, runner
from twinspark.guards.context import Depth
from twinspark.guards.registry import chosen

if TYPE_CHECKING:
    from twinspark.guards.model import Check

HERE = Path(__file__).parent
GUARDS = [
    "first_token", "determinism", "recall", "margin", "neighbours", "blocks", "ladder",
    "acceptance", "trigger", "text", "throughput",
]  # fmt: skip
# smaller than `quick`: a row takes a quarter of a minute on two idle cores
DEPTH = Depth(5, 1024, 2, 8, (8,), (2048,))
DSML = "<\uff5cDSML\uff5ctool_calls>"


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and the guards that must, and may, notice it.

    Attributes:
        name: What is damaged.
        fault: For the plugin.
        expected: Guards that must fail.
        timeout: Limit a request, seconds.
        guards: Which run; default all.
        kill: Kill rank 1's worker first.
    """

    name: str
    fault: dict[str, Any]
    expected: tuple[str, ...]
    timeout: float = 120.0
    guards: tuple[str, ...] = tuple(GUARDS)
    kill: bool = field(default=False)


def kv(name: str, mode: str, **more: Any) -> Row:
    return Row(name, {"kv": mode, **more}, ("blocks",))


ROWS = {
    1: [
        Row("none", {}, ()),
        kv("neighbour block zeroed, K and V", "zero"),
        kv("K only", "zero_k"),
        kv("V only", "zero_v"),
        kv("layer 0 only", "zero", layers=[0]),
        kv("layer 1 only", "zero", layers=[1]),
        kv("one KV head", "zero", heads=[1]),
        kv("V x 0.98 in layer 1", "scale_v", layers=[1], scale=0.98),
        kv("another request's block", "swap"),
        Row("soft logits, always", {"soften": 0.6}, ("recall", "margin")),
        Row("soft logits, alone", {"soften": 0.6, "when": "alone"}, ("margin", "neighbours")),
        Row("soft logits, beside decode", {"soften": 0.6, "when": "decode"}, ("neighbours",)),
        Row("soft logits, beside prefill", {"soften": 0.6, "when": "prefill"}, ("neighbours",)),
        Row("drafts replaced", {"draft": True}, ("acceptance",)),
        Row("leaked markup", {"text": DSML}, ("text", "trigger")),
        Row("repeated loop", {"loop": 60}, ("text", "trigger")),
        Row("a step takes 2 s more", {"hang_s": 2}, ("throughput",), 120.0, ("throughput",)),
        Row("none, again", {}, ()),
    ],
    2: [
        Row("none", {}, ()),
        kv("neighbour block zeroed on rank 1 only", "zero", ranks=[1]),
        Row("rank 1 hangs 8 s a step", {"hang_s": 8, "ranks": [1]}, ("first_token", "recall"),
            5.0, ("health", "first_token", "recall")),
        Row("rank 1's worker killed", {}, ("first_token",), 20.0, ("health", "first_token"), True),
    ],
}  # fmt: skip


class Engine:
    """The engine with the fault plugin, on loopback; one process group a node."""

    def __init__(self, venv: Path, model: Path, nodes: int, work: Path) -> None:
        self.venv, self.model, self.nodes, self.work = venv, model, nodes, work
        self.faults = work / "faults.json"
        self.switch({})
        self.children: list[subprocess.Popen[bytes]] = []
        self.port = 8461

    def switch(self, fault: dict[str, Any]) -> None:
        part = self.faults.with_suffix(".part")
        part.write_text(json.dumps(fault))
        part.replace(self.faults)

    def plugin(self) -> Path:
        """A folder that looks like an installed distribution."""
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
        etc = self.work / f"etc{rank}"
        etc.mkdir(exist_ok=True)
        lines = {
            "model": self.model, "served-model-name": "recall", "host": f"127.0.0.{rank + 1}",
            "port": self.port, "enforce-eager": "true", "dtype": "float32", "block-size": 32,
            "max-model-len": 32768, "max-num-seqs": 16, "max-num-batched-tokens": 2048,
            "enable-prompt-tokens-details": "true",
        }  # fmt: skip
        if self.nodes == 1:
            lines["speculative-config"] = (
                "'" + json.dumps({"method": "ngram", "num_speculative_tokens": 4,
                                  "prompt_lookup_max": 4, "prompt_lookup_min": 1}) + "'"
            )  # fmt: skip
        else:
            lines |= {
                "tensor-parallel-size": 2, "distributed-executor-backend": "mp", "nnodes": 2,
                "node-rank": rank, "master-addr": "127.0.0.1", "master-port": 29561,
            }  # fmt: skip
            lines |= {"headless": "true"} if rank else {}
        (etc / "serve.yaml").write_text("".join(f"{k}: {v}\n" for k, v in lines.items()))
        (etc / "engine.env").write_text("")
        (etc / "node.env").write_text(
            f"TWINSPARK_VARIANT=matrix\nTWINSPARK_RANK={rank}\nTWINSPARK_NNODES={self.nodes}\n"
        )
        return etc

    def start(self) -> None:
        env = os.environ | {
            "PYTHONPATH": str(self.plugin()), "TWINSPARK_FAULTS": str(self.faults),
            "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1", "VLLM_CACHE_ROOT": str(self.work / "cache"),
            "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        for rank in range(self.nodes):
            config = self.etc(rank) / "serve.yaml"
            with (self.work / f"log{rank}").open("wb") as log:
                self.children.append(
                    subprocess.Popen(
                        [self.venv / "bin/vllm", "serve", "--config", config],
                        env=env | {"VLLM_HOST_IP": f"127.0.0.{rank + 1}"},
                        stdout=log, stderr=log, start_new_session=True,
                    )
                )  # fmt: skip
        deadline = time.monotonic() + 1500  # seconds; 30 on an idle machine
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5).is_success:
                    return
            except httpx.TransportError:
                time.sleep(1)
        raise SystemExit(f"the engine did not start: see {self.work}/log0")

    def kill_worker(self, rank: int) -> None:
        """Kill the worker among the descendants of one node's process."""
        below = [self.children[rank].pid]
        for pid in below:
            found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)],
                                   capture_output=True, text=True, check=False).stdout  # fmt: skip
            for line in found.splitlines():
                child, _, title = line.strip().partition(" ")
                below.append(int(child))
                if "Worker" in title:
                    os.kill(int(child), signal.SIGKILL)

    def stop(self) -> None:
        for child in self.children:
            for sign in (signal.SIGTERM, signal.SIGKILL):  # workers can outlive their parent
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(30)


def judge(row: Row, checks: list[Check]) -> dict[str, Any]:
    failed = sorted({check.name.partition(".")[0] for check in checks if check.ok is False})
    missed = sorted(set(row.expected) - set(failed))
    false_alarm = failed if not row.expected else []
    return {
        "fault": row.name, "switch": row.fault, "expected": list(row.expected), "failed": failed,
        "as_expected": not missed and not false_alarm,
        "checks": [
            {"name": c.name, "kind": c.kind, "actual": c.actual, "detail": c.detail[:160]}
            for c in checks
        ],
    }  # fmt: skip


def run_row(row: Row, engine: Engine, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    engine.switch(row.fault)
    if row.kill:
        engine.kill_worker(1)
        time.sleep(8)
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    words = ["--etc", str(engine.etc(0)), "--seed", str(seed), "--timeout", str(row.timeout)]
    context = cli.make_context(parser.parse_args(words), "quick")
    context = replace(context, state=None, depth=DEPTH)
    names = options.only.split(",") if options.only else list(row.guards)
    checks = [c for guard in chosen("quick", names, []) for c in runner.run_one(guard, context)]
    result = judge(row, checks)
    word = "as expected" if result["as_expected"] else "NOT AS EXPECTED"
    print(f"{row.name:42s} {word:16s} failed: {', '.join(result['failed']) or '-'}", flush=True)
    return result


def command(options: argparse.Namespace) -> str:
    """How to repeat it, without the paths of this machine."""
    words = ["python tests/guards/fault_matrix.py --engine VENV --model CHECKPOINT --out FILE"]
    words += [
        f"--{name} {value}"
        for name in ("nodes", "only", "rows", "clean")
        if (value := getattr(options, name))
    ]
    return " ".join(words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=Path, required=True, help="venv with vLLM 0.27.1 CPU")
    parser.add_argument("--model", type=Path, required=True, help="recall checkpoint with oracle")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1, choices=[1, 2])
    parser.add_argument("--only", default="", help="guards")
    parser.add_argument("--rows", default="", help="only rows whose name holds this")
    parser.add_argument("--clean", type=int, default=0, help="instead: so many clean runs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that `finally` stops the engine
    clean = [Row(f"clean {n}", {}, ()) for n in range(options.clean)]
    rows = clean or [row for row in ROWS[options.nodes] if options.rows in row.name]
    with tempfile.TemporaryDirectory(prefix="twinspark-matrix-") as work:
        engine = Engine(options.engine, options.model, options.nodes, Path(work))
        try:
            engine.start()
            results = [
                run_row(row, engine, options, 10_000 + 1000 * n) for n, row in enumerate(rows)
            ]
        finally:
            engine.stop()
    good = sum(result["as_expected"] for result in results)
    written = {
        "schema": "twinspark.fault-matrix/1",
        "label": "emulated",
        "engine": "vLLM 0.27.1 CPU build",
        "nodes": options.nodes,
        "date": time.strftime("%F"),
        "as_expected": f"{good} of {len(rows)}",
        "command": command(options),
        "rows": results,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
