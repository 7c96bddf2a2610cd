"""Exit status: engine death must end the process non-zero, a wished stop must not."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark import patches
from twinspark.patching import Context

pytestmark = pytest.mark.vllm
PATCH = "exit-status"


def scenario_serve(events):
    """The real `serve_http` with a fake engine client; what ended it.

    Args:
        events: What happens once it serves: `die` (engine errored, noticed by the watchdog's
            function), `watchdog` (errored, nothing more), `term` (SIGTERM).
    """
    import asyncio
    import os
    import signal
    import socket
    from types import SimpleNamespace

    import uvloop
    from fastapi import FastAPI
    from vllm.entrypoints import launcher
    from vllm.entrypoints.openai import api_server

    class Engine:
        errored, is_running = False, True
        vllm_config = SimpleNamespace(shutdown_timeout=0)
        stopped = False

        def die(self):
            self.errored, self.is_running = True, False

        def shutdown(self, timeout=None):  # noqa: ARG002 - the client's signature
            self.stopped = True
            self.die()  # a wished stop leaves the stock client "errored" as well

    engine = Engine()
    app = FastAPI()
    app.state.engine_client = engine

    async def happen():
        while not getattr(getattr(app.state, "server", None), "started", False):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # serve_http installs its signal handlers after the start
        for event in events:
            if event == "term":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                engine.die()
            if event == "die":
                launcher.terminate_if_errored(app.state.server, engine)

    async def main():
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        task = asyncio.ensure_future(happen())
        shutdown = await api_server.serve_http(
            app, sock=sock, host="127.0.0.1", port=sock.getsockname()[1], log_level="error"
        )
        await task
        await shutdown

    try:
        uvloop.run(main())
    except RuntimeError as error:
        return {"raised": type(error).__name__, "stopped": engine.stopped}
    return {"raised": None, "stopped": engine.stopped}


def scenario_headless(exit_code, shutting_down):
    """The real inline worker monitor over one worker process that ends."""
    import multiprocessing
    from types import SimpleNamespace

    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    process = multiprocessing.get_context("fork").Process(
        target=__import__("os")._exit, args=(exit_code,), name="VllmWorker-1"
    )
    process.start()
    executor = MultiprocExecutor.__new__(MultiprocExecutor)
    executor.workers = [SimpleNamespace(proc=process, death_writer=None, worker_response_mq=None)]
    executor.failure_callback = None
    executor.is_failed = False
    executor.shutting_down = shutting_down
    try:
        executor.start_worker_monitor(inline=True)
    except RuntimeError as error:
        return str(error)
    return None


def test_engine_death__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_serve, ["watchdog"]) == {"raised": None, "stopped": False}


def test_engine_death__fixed(overlaid):
    assert overlaid.run(scenario_serve, ["watchdog"])["raised"] == "EngineDiedError"


def test_engine_death__is_not_cleared_by_a_later_sigterm(overlaid):
    assert overlaid.run(scenario_serve, ["die", "term"])["raised"] == "EngineDiedError"


def test_wished_stop__stays_zero(overlaid):
    assert overlaid.run(scenario_serve, ["term"]) == {"raised": None, "stopped": True}


def test_headless_worker_death__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_headless, 17, False) is None


def test_headless_worker_death__fixed(overlaid):
    assert "'VllmWorker-1': 17" in overlaid.run(scenario_headless, 17, False)


def test_headless_wished_stop__stays_zero(overlaid):
    assert overlaid.run(scenario_headless, 0, True) is None


def test_exit_status__upstream_unchanged():
    unchanged(PATCH)


def test_exit_status__gives_way_to_keep_alive(monkeypatch):
    record = next(patch for patch in patches.load() if patch.id == PATCH)
    assert record.applies(Context("cpu")) is None
    monkeypatch.setenv("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "1")
    assert "outlives" in record.applies(Context("cpu"))
