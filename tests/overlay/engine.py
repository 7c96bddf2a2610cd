"""Run scenarios against the stock wheel's own Python files, with and without the overlay."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from twinspark import patches, sources

REPOSITORY = Path(__file__).parents[2]
ZYGOTE = Path(__file__).with_name("zygote.py")


def cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("TWINSPARK_CACHE", base / "twinspark"))


def stock_wheel() -> Path:
    """Folder that holds the `vllm/` of the unpacked stock wheel."""
    return Path(os.environ.get("TWINSPARK_STOCK_WHEEL", cache() / "stock/vllm-0.27.1"))


def python() -> Path:
    """Interpreter that has the engine's requirements."""
    if importlib.util.find_spec("torch") and importlib.util.find_spec("triton"):
        return Path(sys.executable)
    return cache() / "overlay-test-venv/bin/python"


def environment(**more: str) -> dict[str, str]:
    """Environment in which the wheel imports on a machine without a GPU."""
    paths = [stock_wheel(), REPOSITORY / "engine_overlay/src", REPOSITORY / "tests"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TWINSPARK_", "VLLM_"))}
    return (
        kept
        | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "CUDA_VISIBLE_DEVICES": "",  # set but empty: the wheel then keeps real Triton
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        }
        | more
    )


class ScenarioError(AssertionError):
    """A scenario raised; the text holds its traceback."""


class Engine:
    """One zygote; started by the first scenario."""

    def __init__(self, *, overlay: bool, **env: str) -> None:
        self.overlay = overlay
        self._env = environment(**env)
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python(), ZYGOTE, "overlay" if self.overlay else "pristine"],
            env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        if not process.stdout.readline():
            raise ScenarioError(f"the engine could not be imported (exit {process.wait()})")
        return process

    def outcome(self, function: Any, *args: Any, timeout: float = 120) -> dict[str, Any]:
        """Run a test file's function in a fresh fork; its value, or its error as text."""
        self._process = self._process or self._start()
        assert self._process.stdin
        assert self._process.stdout
        where = f"{function.__code__.co_filename}:{function.__name__}"
        request = {"scenario": where, "args": args, "timeout": timeout}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def run(self, function: Any, *args: Any, timeout: float = 120) -> Any:
        """Value of a scenario; raises with its traceback when it raised."""
        outcome = self.outcome(function, *args, timeout=timeout)
        if "error" in outcome:
            raise ScenarioError(outcome.get("trace", outcome["error"]))
        return outcome["value"]

    def stop(self) -> None:
        if self._process is not None and self._process.stdin:
            self._process.stdin.close()
            self._process.wait(timeout=30)


def unchanged(patch_id: str) -> None:
    """Every source under a patch is the text that the patch was written against."""
    patch = next(found for found in patches.load() if found.id == patch_id)
    found = {name: sources.digest_in(stock_wheel(), name) for name in patch.upstream_sha256}
    assert found == dict(patch.upstream_sha256)
    assert set(patch.targets) <= set(found)
