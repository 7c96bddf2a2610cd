"""A process that has imported the engine, pristine or with the overlay, and forks per scenario.

Importing vLLM takes seconds; a fork of a process that has done so and nothing else is as fresh as
a new one. Protocol: one JSON object a line on stdin and stdout (`engine.py` speaks it).
"""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
import types
from pathlib import Path

# What the scenarios use; imported once, before the forks.
PRELOAD = (
    "hypothesis",
    "vllm.engine.arg_utils",
    "vllm.entrypoints.openai.api_server",
    "vllm.model_executor.kernels.linear",
    "vllm.model_executor.layers.fused_moe.oracle.mxfp4",
    "vllm.model_executor.layers.sparse_attn_indexer",
    "vllm.model_executor.models.qwen3_dspark",
    "vllm.models.deepseek_v4.nvidia.flashinfer_sparse",
    "vllm.platforms.cuda",
    "vllm.v1.attention.backends.mla.indexer",
    "vllm.v1.attention.backends.mla.sparse_swa",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.gpu.spec_decode.dspark.speculator",
    "vllm.v1.worker.startup_plan",
)


def load_engine(overlay: bool) -> None:
    """Import what the scenarios need; with the overlay, arm it before anything it targets."""
    # The stock wheel's CUDA platform imports its extension; the tests have its Python files only.
    for name in ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch"):
        sys.modules[name] = types.ModuleType(name)
    if overlay:
        from twinspark import plugin

        plugin.register()
    import torch
    import vllm.utils.torch_utils

    torch.set_num_threads(1)
    vllm.utils.torch_utils.PIN_MEMORY = False  # no CUDA here, and pinning needs it
    for name in PRELOAD:
        importlib.import_module(name)
    gc.freeze()  # the forks share what is there instead of copying it at their first collection


def scenario(reference: str):
    """Function of a test file, given as `path:name`."""
    path, _, name = reference.rpartition(":")
    spec = importlib.util.spec_from_file_location("scenario_" + Path(path).stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def in_child(request: dict, write: int) -> None:
    """Run one scenario and write its outcome; never returns."""
    try:
        outcome = {"value": scenario(request["scenario"])(*request["args"])}
    except BaseException as error:  # noqa: BLE001 - everything is told to the test
        outcome = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    with os.fdopen(write, "w") as pipe:
        json.dump(outcome, pipe)
    sys.stdout.flush()
    os._exit(0)


def run(request: dict) -> dict:
    """Fork, run, collect; kill at the deadline."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(2, 1)  # what the engine prints must not disturb the protocol
        in_child(request, write)
    os.close(write)
    text = b""
    while True:
        ready, _, _ = select.select([read], [], [], request["timeout"])
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": f"TimeoutError: still running after {request['timeout']} s"}
        chunk = os.read(read, 65536)
        if not chunk:
            break
        text += chunk
    os.close(read)
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"error": "ProcessDied: no outcome"}


def main() -> None:
    """Serve requests until stdin closes."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load_engine(overlay=sys.argv[1] == "overlay")
    out.write('{"ready": true}\n')
    out.flush()
    for line in sys.stdin:
        out.write(json.dumps(run(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
