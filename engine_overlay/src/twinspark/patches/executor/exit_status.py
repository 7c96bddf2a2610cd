"""Exit status: a server whose engine died must not tell systemd that all went well."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

API_SERVER = "vllm.entrypoints.openai.api_server:serve_http"
MONITOR = "vllm.v1.executor.multiproc_executor:MultiprocExecutor.start_worker_monitor"


class EngineDiedError(RuntimeError):
    """The engine or a worker died; raised after the orderly shutdown, to end non-zero."""


class DeathLatch:
    """Remembers which came first: the engine's death or somebody's wish to stop.

    A wish after the death does not clear it, and errors that a wished shutdown causes do not
    count as death.
    """

    def __init__(self, engine: Any) -> None:  # noqa: ANN401 - vLLM's EngineClient
        self._engine = engine
        self._stop = engine.shutdown
        self._wished = False
        self._died = False

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passes through
        """Stand in for the client's `shutdown`, which only a signal handler calls."""
        if self._engine.errored:
            self._died = True
        else:
            self._wished = True
        return self._stop(*args, **kwargs)

    def died(self) -> bool:
        """Whether the engine died before anybody wished the server to stop."""
        return self._died or (not self._wished and bool(self._engine.errored))


async def _raise_after(shutdown: Awaitable[Any]) -> None:
    await shutdown
    raise EngineDiedError(
        "the engine died and the HTTP server has been shut down in order; exiting non-zero. "
        "The first error is above, from EngineCore or a worker."
    )


def latched(serve_http: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap `serve_http`: same shutdown, but its coroutine raises when the engine had died."""

    @functools.wraps(serve_http)
    async def serve(app: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passes through
        engine = app.state.engine_client
        latch = DeathLatch(engine)
        engine.shutdown = latch.shutdown
        shutdown = await serve_http(app, *args, **kwargs)
        return _raise_after(shutdown) if latch.died() else shutdown

    return serve


def reporting(
    start_worker_monitor: Callable[..., None],
) -> Callable[..., None]:
    """Wrap `start_worker_monitor`: the follower's inline wait raises when a worker died."""

    @functools.wraps(start_worker_monitor)
    def start(self: Any, inline: bool = False) -> None:  # noqa: ANN401 - vLLM's
        start_worker_monitor(self, inline=inline)
        if inline and self.is_failed:
            codes = {handle.proc.name: handle.proc.exitcode for handle in self.workers}
            raise EngineDiedError(
                f"a worker of this headless node died (exit codes {codes}); exiting non-zero"
            )

    return start


def _install(edit: Edit) -> None:
    if edit.module.__name__ == "vllm.entrypoints.openai.api_server":
        edit.replace("serve_http", latched(edit.original("serve_http")))
    else:
        name = "MultiprocExecutor.start_worker_monitor"
        edit.replace(name, reporting(edit.original(name)))


def _applies(_: Context) -> str | None:
    if os.environ.get("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "0") not in {"", "0"}:
        return "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH asks for a server that outlives its engine"
    return None


PATCH = Patch(
    id="exit-status",
    title="Engine death exits 0",
    layer="executor",
    targets=(API_SERVER, MONITOR),
    upstream_sha256=pinned(
        API_SERVER,
        MONITOR,
        "vllm.entrypoints.launcher:serve_http",
        "vllm.entrypoints.launcher:terminate_if_errored",
        "vllm.entrypoints.openai.api_server:run_server_worker",
        "vllm.entrypoints.cli.serve:run_headless",
    ),
    vllm=("0.27.1",),
    symptom="The engine or the headless follower dies, the process exits 0, and a unit with "
    "Restart=on-failure stays down.",
    cause="launcher.py:180-190 only sets should_exit and serve_http returns as if asked to stop; "
    "cli/serve.py:223-225 returns after the inline worker monitor whatever ended it.",
    fix="Latch that the engine died before anyone wished a stop; let the HTTP shutdown finish; "
    "then raise. The inline monitor of a headless node raises when a worker died.",
    upstream="Open: issue #48966, PR #52178; still so in 0.33.0.",
    remove_when="`vllm serve` exits non-zero after its EngineCore is killed.",
    constraint="Two nodes under systemd: the unit is the only one watching.",
    applies=_applies,
    install=_install,
)
