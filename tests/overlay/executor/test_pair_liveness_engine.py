"""Pair liveness on the engine's own classes (the connection itself: test_pair_liveness.py)."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "pair-liveness"


def follow(handle_pipe):
    """A follower's worker: the real busy loop over a broadcast queue from another node."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
    from vllm.v1.executor.multiproc_executor import WorkerProc

    proc = WorkerProc.__new__(WorkerProc)
    proc.rank, proc.worker = 1, None
    proc.rpc_broadcast_mq = MessageQueue.create_from_handle(handle_pipe.recv(), -1)
    proc.worker_response_mq = None
    proc.rpc_broadcast_mq.wait_until_ready()
    proc.worker_busy_loop()


def lead(pipe):
    """A head that dies right after the start."""
    import os

    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    queue = MessageQueue(1, 0, connect_ip="127.0.0.1")
    pipe.send(queue.export_handle())
    queue.wait_until_ready()
    os._exit(9)


def scenario_head_dies():
    """Whether a follower's worker still waits, seconds after its head's death."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe()
    follower = context.Process(target=follow, args=(reader,), daemon=True)
    leader = context.Process(target=lead, args=(writer,), daemon=True)
    follower.start()
    leader.start()
    leader.join()
    follower.join(timeout=6)
    waits = follower.is_alive()
    follower.kill()
    return waits


def scenario_executor(port):
    """A head's real `_init_executor`, whose stock part is cut off, and a follower that leaves."""
    import socket
    import time
    from types import SimpleNamespace

    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    from twinspark.patches.executor import pair_liveness

    executor = MultiprocExecutor.__new__(MultiprocExecutor)
    executor.parallel_config = SimpleNamespace(
        nnodes_within_dp=2, node_rank_within_dp=0, master_addr="127.0.0.1", master_port=port
    )
    told = []
    wrapped = MultiprocExecutor._init_executor
    if not hasattr(wrapped, "__wrapped__"):
        return "not wrapped"

    def stock_part(self):
        self.is_failed, self.failure_callback = False, lambda: told.append("failed")

    pair_liveness.paired(stock_part)(executor)
    follower = socket.create_connection(("127.0.0.1", port + 1))
    follower.sendall(pair_liveness.HELLO + b"rank 1\n")
    time.sleep(0.3)
    before = list(told)
    follower.close()
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        time.sleep(0.05)
    return [before, told, executor.is_failed]


def test_pair__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_head_dies) is True
    assert pristine.run(scenario_executor, 41_807) == "not wrapped"


def test_pair__fixed(overlaid):
    assert overlaid.run(scenario_executor, 41_817) == [[], ["failed"], True]


def test_pair__upstream_unchanged():
    unchanged(PATCH)
