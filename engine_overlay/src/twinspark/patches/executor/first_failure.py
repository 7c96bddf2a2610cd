"""#4b: the first failure of any rank ends the call and is told (a dead node: pair_liveness)."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
import logging
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("vllm.twinspark")

MODULE = "vllm.v1.executor.multiproc_executor"
POST_INIT = f"{MODULE}:MultiprocExecutor._post_init_executor"
BUSY_LOOP = f"{MODULE}:WorkerProc.worker_busy_loop"
SLICE_S = 0.5  # how late a silent rank's failure may be noticed


class WatchedQueue:
    """One rank's response queue that also listens to the others while it waits.

    Stock reads rank after rank without a timeout: if rank 1 fails while rank 0 sits in a
    collective with it, the failure lies unread for ever. Every message belongs to its own rank's
    calls in order, so what is read early is kept for later; only a failure jumps the queue.
    """

    def __init__(self, queue: Any, rank: int, failure: Any) -> None:  # noqa: ANN401 - vLLM's
        self._queue = queue
        self._failure = failure
        self._early: deque[Any] = deque()
        self._looked = time.monotonic()
        self.rank = rank
        self.siblings: Sequence[WatchedQueue] = ()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the queue's
        return getattr(self._queue, name)

    def dequeue(self, timeout: float | None = None, indefinite: bool = False) -> Any:  # noqa: ANN401, ARG002
        """Next response of this rank, or the first failure of another.

        Raises:
            TimeoutError: Nothing within `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if time.monotonic() - self._looked >= SLICE_S:
                self._looked = time.monotonic()
                failed = self._failed_sibling()
                if failed is not None:
                    return failed
            if self._early:
                return self._early.popleft()
            left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
            try:
                return self._queue.dequeue(timeout=max(left, 0.0))
            except TimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def _failed_sibling(self) -> Any | None:  # noqa: ANN401 - a (status, text) of vLLM
        for sibling in self.siblings:
            message = sibling.peek()
            if message is not None and message[0] == self._failure:
                logger.error("twinspark: rank %d failed: %s", sibling.rank, message[1])
                return message[0], f"rank {sibling.rank}: {message[1]}"
        return None

    def peek(self) -> Any | None:  # noqa: ANN401 - a (status, value) of vLLM
        """Newest message that has arrived, kept for its own call; None without one."""
        try:
            self._early.append(self._queue.dequeue(timeout=0.0))
        except TimeoutError:
            return None
        return self._early[-1]


def watching(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `MultiprocExecutor._post_init_executor`, which runs when the queues are ready."""

    @functools.wraps(original)
    def post_init(self: Any) -> None:  # noqa: ANN401 - vLLM's
        from vllm.v1.executor.multiproc_executor import WorkerProc

        original(self)
        failure = WorkerProc.ResponseStatus.FAILURE
        watched = [WatchedQueue(q, rank, failure) for rank, q in enumerate(self.response_mqs)]
        for queue in watched:
            queue.siblings = tuple(other for other in watched if other is not queue)
        self.response_mqs = watched

    return post_init


def telling(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """`WorkerProc.worker_busy_loop` in which every rank's exception is sent, not only one's."""

    @functools.wraps(original)
    def worker_busy_loop(self: Any) -> None:  # noqa: ANN401 - vLLM's
        import cloudpickle  # type: ignore[import-not-found]  # the engine's environment has it

        while True:
            method, args, kwargs, output_rank = self.rpc_broadcast_mq.dequeue(indefinite=True)
            try:
                function = (
                    functools.partial(cloudpickle.loads(method), self.worker)
                    if isinstance(method, bytes)
                    else getattr(self.worker, method)
                )
                output = function(*args, **kwargs)
                if output_rank is None or self.rank == output_rank:
                    self.handle_output(output)
            except Exception as error:
                error.add_note(traceback.format_exc())
                logger.exception("WorkerProc hit an exception.")
                self.handle_output(error)

    return worker_busy_loop


def _install(edit: Edit) -> None:
    post_init, loop = "MultiprocExecutor._post_init_executor", "WorkerProc.worker_busy_loop"
    edit.replace(post_init, watching(edit.original(post_init)))
    edit.replace(loop, telling(edit.original(loop)))


PATCH = Patch(
    id="04b-first-failure",
    title="A warm-up exception becomes a hang",
    layer="executor",
    targets=(POST_INIT, BUSY_LOOP),
    upstream_sha256=pinned(
        POST_INIT,
        BUSY_LOOP,
        f"{MODULE}:MultiprocExecutor.collective_rpc",
        f"{MODULE}:FutureWrapper",
        f"{MODULE}:WorkerProc.handle_output",
        f"{MODULE}:WorkerProc.enqueue_output",
        "vllm.distributed.device_communicators.shm_broadcast:MessageQueue.dequeue",
    ),
    vllm=("0.27.1",),
    symptom="One rank raises, the other waits for it in a collective: the operator sees 'No "
    "available shared memory broadcast block' every minute and nothing else, for ever.",
    cause="multiproc_executor.py:394-410 reads responses rank after rank without a timeout; "
    ":1012-1022 drops an exception of a rank that is not asked to answer.",
    fix="Every rank sends its exception; whoever waits looks at the other ranks twice a second and "
    "ends on the first failure. That a node disappears is `pair-liveness`.",
    upstream="Not fixed in 0.33.0; #53597 is open.",
    remove_when="collective_rpc raises when a rank other than the first fails.",
    constraint="Two nodes: half of the ranks are out of the leader's sight.",
    applies=lambda _: None,
    install=_install,
)
