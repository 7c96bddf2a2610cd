"""#4b: a warm-up exception becomes a hang."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "04b-first-failure"


class FakeWorker:
    """Model worker of one rank."""

    def __init__(self, rank):
        self.rank = rank

    def healthy(self, value):
        return [self.rank, value]

    def asymmetric(self):
        """Rank 1 raises while rank 0 waits for it in a collective."""
        import time

        if self.rank == 1:
            raise ValueError("kernel declines 5 tokens")
        time.sleep(600)

    def late(self):
        """Rank 0 answers at once, rank 1 raises."""
        if self.rank == 1:
            raise ValueError("late failure")
        return "fine"


def run_worker(rank, broadcast, pipe):
    """One worker process: the real busy loop over a fake model worker."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
    from vllm.v1.executor.multiproc_executor import WorkerProc

    proc = WorkerProc.__new__(WorkerProc)
    proc.rank, proc.worker, proc.use_async_scheduling = rank, FakeWorker(rank), False
    proc.rpc_broadcast_mq = MessageQueue.create_from_handle(broadcast, rank)
    proc.worker_response_mq = MessageQueue(1, 1)
    pipe.send(proc.worker_response_mq.export_handle())
    proc.rpc_broadcast_mq.wait_until_ready()
    proc.worker_response_mq.wait_until_ready()
    proc.worker_busy_loop()


def executor_of_two():
    """The real executor's RPC half, with two worker processes."""
    import multiprocessing
    from collections import deque

    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    executor = MultiprocExecutor.__new__(MultiprocExecutor)
    executor.is_failed, executor.failure_callback = False, None
    executor.shutting_down = False
    executor.futures_queue = deque()
    executor.rpc_broadcast_mq = MessageQueue(2, 2)
    context, processes, handles = multiprocessing.get_context("fork"), [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        arguments = (rank, executor.rpc_broadcast_mq.export_handle(), theirs)
        processes.append(context.Process(target=run_worker, args=arguments, daemon=True))
        processes[-1].start()
        handles.append(ours.recv())
    executor.response_mqs = [MessageQueue.create_from_handle(handle, 0) for handle in handles]
    executor.rpc_broadcast_mq.wait_until_ready()
    for queue in executor.response_mqs:
        queue.wait_until_ready()
    executor._post_init_executor()
    return executor, processes


def scenario_rpc(method, reply_rank, repeat):
    """What a call, repeated, ends with and after how many seconds."""
    import time

    executor, processes = executor_of_two()
    values = [executor.collective_rpc("healthy", args=(i,)) for i in range(3)]
    started = time.monotonic()
    said = None
    try:
        for _ in range(repeat):
            executor.collective_rpc(method, unique_reply_rank=reply_rank, timeout=8)
            time.sleep(0.2)
    except (RuntimeError, TimeoutError) as error:
        said = f"{type(error).__name__}: {error}"
    for process in processes:
        process.kill()
    return {"healthy": values, "said": said, "seconds": time.monotonic() - started}


def scenario_pipelined():
    """An all-rank call issued behind an unanswered single-rank one keeps its own answers."""
    executor, processes = executor_of_two()
    first = executor.collective_rpc("healthy", args=("a",), unique_reply_rank=0, non_block=True)
    second = executor.collective_rpc("healthy", args=("b",), non_block=True)
    third = executor.collective_rpc("healthy", args=("c",), unique_reply_rank=1)
    values = [first.result(), second.result(), third]
    for process in processes:
        process.kill()
    return values


@pytest.mark.parametrize(("reply_rank", "call"), [(None, "warm-up"), (0, "execute")])
def test_failure__reproduces_on_pristine(pristine, reply_rank, call):
    seen = pristine.run(scenario_rpc, "asymmetric", reply_rank, 1)
    assert seen["said"].startswith("TimeoutError"), call
    assert "declines" not in seen["said"]


@pytest.mark.parametrize(("reply_rank", "call"), [(None, "warm-up"), (0, "execute")])
def test_failure__fixed(overlaid, reply_rank, call):
    seen = overlaid.run(scenario_rpc, "asymmetric", reply_rank, 1)
    assert "rank 1: kernel declines 5 tokens" in seen["said"], call
    assert seen["seconds"] < 7
    assert seen["healthy"] == [[[0, i], [1, i]] for i in range(3)]


def test_failure__of_a_silent_rank_is_seen_although_the_other_answers(pristine, overlaid):
    assert pristine.run(scenario_rpc, "late", 0, 6)["said"] is None
    assert "rank 1: late failure" in overlaid.run(scenario_rpc, "late", 0, 6)["said"]


def test_watching__keeps_every_answer_with_its_call(overlaid):
    expected = [[0, "a"], [[0, "b"], [1, "b"]], [1, "c"]]
    assert overlaid.run(scenario_pipelined) == expected


def test_first_failure__upstream_unchanged():
    unchanged(PATCH)
