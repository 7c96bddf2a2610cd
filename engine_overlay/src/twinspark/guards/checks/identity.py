"""identity: what this node is, so that the merge can say whether both nodes are the same."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, shorten, verdict
from twinspark.guards.system import ABSENT, torch_cuda, version

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.settings import Settings
    from twinspark.guards.system import System

# node.env and, by rank, serve.yaml differ between the nodes; engine.env never does
EQUAL_FILES = ("engine.env",)
NODE_FILES = ("serve.yaml", "node.env")
DISTRIBUTIONS = ("vllm", "torch", "twinspark", "flashinfer-python", "triton", "transformers")


def equal_facts(system: System, settings: Settings) -> dict[str, str]:
    """Facts that must be the same on both nodes."""
    gpu, driver = system.gpu()
    facts = {
        "os": system.os_name(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cuda": torch_cuda(),
        "gpu": gpu,
        "driver": driver,
        "release": system.release(settings.etc),
        "variant": settings.variant,
        "model": settings.model,
        "nnodes": str(settings.nnodes),
    }
    facts |= {name: version(name) for name in DISTRIBUTIONS}
    return facts | {f"sha256 {name}": settings.sha256[name] for name in EQUAL_FILES}


def node_facts(settings: Settings) -> dict[str, str]:
    """Facts that may differ."""
    return {"rank": str(settings.rank)} | {
        f"sha256 {name}": settings.sha256[name] for name in NODE_FILES
    }


def run(context: Context) -> list[Check]:
    """The node by itself: it belongs to a release, and has an engine to serve with."""
    facts = equal_facts(context.system, context.settings)
    needed = ("vllm", "torch", "twinspark", "release")
    absent = [name for name in needed if facts[name] == ABSENT]
    shown = [
        f"{name} {facts[name]}" for name in ("vllm", "torch", "twinspark", "kernel", "release")
    ]
    return [
        verdict(
            "identity", context.node, not absent, "a release with vllm, torch, twinspark",
            shorten(shown), f"not found: {shorten(absent)}" if absent else "", failure="missing",
        )
    ]  # fmt: skip


GUARD = Guard(
    "identity", "local", "versions, release and configuration, compared at merge", EVERY, run
)
