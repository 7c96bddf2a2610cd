"""Which process of the engine this is, told from the outside: names, argv, configuration file."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# Process names are the engine's: v1/executor/multiproc_executor.py:696, v1/engine/utils.py:167,
# v1/utils.py:232 (0.27.1).
_WORKER = re.compile(r"VllmWorker-(\d+)")


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration file that the server was started with."""

    path: str
    sha256: str
    headless: bool
    node_rank: int | None


def _being_forked() -> str | None:
    """Name of the multiprocessing child that this process is just becoming by fork.

    In the child the name is only set after the at-fork hooks; the parent's stack, which the child
    has inherited, still holds the process object.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the documented way to walk a stack
    while frame is not None:
        process = frame.f_locals.get("process_obj")
        if frame.f_code.co_filename.endswith("popen_fork.py") and process is not None:
            return str(process.name)
        frame = frame.f_back
    return None


def process_name() -> str:
    """Name of this process as multiprocessing knows it; `MainProcess` for a started program."""
    return _being_forked() or multiprocessing.current_process().name


def read_config(argv: list[str]) -> Config | None:
    """Configuration file named by `--config`, or None when there is none that can be read."""
    path: str | None = None
    for index, word in enumerate(argv):
        if word == "--config" and index + 1 < len(argv):
            path = argv[index + 1]
        elif word.startswith("--config="):
            path = word.partition("=")[2]
    if path is None or not Path(path).is_file():
        return None
    raw = Path(path).read_bytes()
    text = raw.decode(errors="replace")
    rank = re.search(r"^node-rank:\s*(\d+)\s*$", text, re.MULTILINE)
    headless = re.search(r"^headless:\s*(true|yes|on)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return Config(
        str(Path(path).absolute()),
        hashlib.sha256(raw).hexdigest(),
        headless is not None,
        int(rank.group(1)) if rank else None,
    )


def role(name: str, argv: list[str], config: Config | None) -> str:
    """Role of a process.

    Args:
        name: Its multiprocessing name.
        argv: Its program arguments; a spawned child has its parent's.
        config: The configuration file among them.

    Returns:
        `api_server`, `headless`, `engine_core`, `worker` or `other`.
    """
    if _WORKER.fullmatch(name):
        return "worker"
    if name.startswith(("EngineCore", "DPEngineCore")):
        return "engine_core"
    if name.startswith("ApiServer_"):
        return "api_server"
    if name == "MainProcess" and _serves(argv):
        return "headless" if "--headless" in argv or (config and config.headless) else "api_server"
    return "other"


def _serves(argv: list[str]) -> bool:
    return "serve" in argv[1:3] or Path(argv[0]).name == "api_server.py" if argv else False


def rank(name: str, config: Config | None) -> int | None:
    """Global rank of a worker, or the node's rank for the other roles; None when unknown."""
    worker = _WORKER.fullmatch(name)
    if worker:
        return int(worker.group(1))
    told = os.environ.get("TWINSPARK_RANK", "")
    if told.isdigit():
        return int(told)
    return config.node_rank if config else None
