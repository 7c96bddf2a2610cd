"""The faults of the matrix: what is damaged, how, and which guards must notice it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinspark.guards.context import Depth

if TYPE_CHECKING:
    from pathlib import Path

    from guards.real_engine import Engine

GUARDS = (
    "first_token", "determinism", "recall", "margin", "neighbours", "blocks", "ladder",
    "acceptance", "trigger", "text", "throughput",
)  # fmt: skip
LOCAL = ("identity", "config_match", "overlay_applied", "health", "first_token", "logs")
# smaller than `quick`: a row takes a quarter of a minute on two idle cores
DEPTH = Depth(5, 1024, 2, 8, (8,), (2048,))
DSML = "<\uff5cDSML\uff5ctool_calls>"
Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and the guards that must, and may, notice it.

    Attributes:
        name: What is damaged.
        fault: For the plugin.
        expected: Guards that must fail.
        timeout: Limit a request, seconds.
        guards: Which run; default all.
        act: Damage from outside the engine; gives what undoes it.
        history: Whether runs without the fault come first and set floors.
        restart: Whether the engine is of no use afterwards.
    """

    name: str
    fault: dict[str, Any]
    expected: tuple[str, ...]
    timeout: float = 120.0
    guards: tuple[str, ...] = GUARDS
    act: Callable[[Engine], Undo | None] | None = None
    history: bool = False
    restart: bool = False


def kv(name: str, mode: str, **more: Any) -> Row:
    return Row(name, {"kv": mode, **more}, ("blocks",))


def freeze(engine: Engine) -> Undo:
    """Rank 1 stops where it is: its host answers, its processes do not."""
    engine.signal(1, signal.SIGSTOP)
    return lambda: engine.signal(1, signal.SIGCONT)


def kill_worker(engine: Engine) -> None:
    """Kill rank 1's worker while nothing is asked."""
    engine.signal(1, signal.SIGKILL, "Worker")
    time.sleep(8)


def kill_node(engine: Engine) -> None:
    """Kill all of rank 1 at once while nothing is asked, as a power cut does."""
    engine.signal(1, signal.SIGKILL)
    time.sleep(8)


def restoring(path: Path, text: str) -> Undo:
    def undo() -> None:
        path.write_text(text)

    return undo


def edited(name: str, text: str) -> Callable[[Engine], Undo]:
    """A rendered file changes after the start."""

    def act(engine: Engine) -> Undo:
        path = engine.etc(0) / name
        before = path.read_text()
        path.write_text(before + text)
        return restoring(path, before)

    return act


def lost_report(engine: Engine) -> Undo:
    """The engine core's overlay report is gone."""
    (path,) = (engine.work / "reports0").glob("engine_core-*.json")
    before = path.read_text()
    path.unlink()
    return restoring(path, before)


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
        Row("far end of long documents zeroed", {"kv": "zero", "from_block": 34}, ("ladder",)),
        Row("soft logits, always", {"soften": 0.6}, ("recall", "margin")),
        Row("soft logits, alone", {"soften": 0.6, "when": "alone"}, ("margin", "neighbours")),
        Row("soft logits, beside decode", {"soften": 0.6, "when": "decode"}, ("neighbours",)),
        Row("soft logits, beside prefill", {"soften": 0.6, "when": "prefill"}, ("neighbours",)),
        Row("noise of 0.1 % on the logits", {"noise": 1e-3}, ("determinism",)),
        Row("drafts replaced", {"draft": True}, ("acceptance",)),
        Row("leaked markup", {"text": DSML}, ("text", "trigger")),
        Row("repeated loop", {"loop": 60}, ("text", "trigger")),
        Row("a step takes 2 s more", {"hang_s": 2}, ("throughput",), guards=("throughput",)),
        Row("a step takes 0.6 s more, after three runs", {"hang_s": 0.6}, ("throughput",),
            guards=("throughput",), history=True),
        Row("none, local guards", {}, (), guards=LOCAL),
        Row("serve.yaml rendered again after the start", {}, ("config_match",), guards=LOCAL,
            act=edited("serve.yaml", "# newer\n")),
        Row("engine.env rendered again after the start", {}, ("config_match",), guards=LOCAL,
            act=edited("engine.env", "OMP_NUM_THREADS=2\n")),
        Row("another model name rendered after the start", {}, ("health", "config_match"),
            guards=LOCAL, act=edited("serve.yaml", "served-model-name: other\n")),
        Row("overlay report of the engine core lost", {}, ("overlay_applied",), guards=LOCAL,
            act=lost_report),
        Row("none, again", {}, ()),
        # last: the engine's counter of corrupted requests never falls
        Row("no number in the logits", {"nan": True}, ("counters",),
            guards=("first_token", "counters")),
    ],
    2: [
        Row("none", {}, ()),
        kv("neighbour block zeroed on rank 1 only", "zero", ranks=[1]),
        Row("rank 1 hangs 8 s a step", {"hang_s": 8, "ranks": [1]}, ("first_token", "recall"),
            5.0, ("health", "first_token", "recall")),
        Row("rank 1 frozen", {}, ("first_token", "recall"), 8.0,
            ("health", "first_token", "recall"), freeze),
        Row("rank 1's worker killed while idle", {}, ("first_token", "logs"), 20.0, LOCAL,
            kill_worker, restart=True),
        Row("all of rank 1 killed while idle", {}, ("first_token", "logs"), 20.0, LOCAL,
            kill_node, restart=True),
    ],
}  # fmt: skip
