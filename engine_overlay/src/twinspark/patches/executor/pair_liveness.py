"""Pair liveness: two nodes that serve one model live and die together.

Stock leaves each half blind to the other. A dead follower is noticed at the next request (and
/health says 200 until then); a dead head is not noticed by the follower at all, which then waits
for a process that no longer exists while a new head waits for it. One idle TCP connection over
the rail is enough: the kernel closes it when a process dies, and keepalive does when a node does.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("vllm.twinspark")

INIT = "vllm.v1.executor.multiproc_executor:MultiprocExecutor._init_executor"
HELLO = b"twinspark-pair/1 "
DEFAULT_TIMEOUT_S = 60  # a rail that is unplugged for a few seconds must not end a request


def port_of(master_port: int) -> int:
    """Port of the pair's connection, beside the engine's own rendezvous port."""
    return master_port + 1


def watch_for_silence(connection: socket.socket, timeout_s: int) -> None:
    """Let the kernel notice within `timeout_s` a peer that has vanished without closing."""
    probe = max(1, timeout_s // 6)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_s * 1000)


def until_closed(connection: socket.socket) -> str:
    """Block until the peer is gone.

    Returns:
        Why it counts as gone, in words.
    """
    try:
        while connection.recv(64):
            pass
    except OSError as error:
        return f"{error.strerror or error}"
    return "its process ended"


class Pair:
    """The connection of one executor with its counterparts on the other nodes.

    Args:
        executor: vLLM's `MultiprocExecutor`, whose `is_failed` and `failure_callback` are used.
        timeout_s: Seconds of silence after which a node counts as gone.
    """

    def __init__(self, executor: Any, timeout_s: int = DEFAULT_TIMEOUT_S) -> None:  # noqa: ANN401 - vLLM's
        self.executor = executor
        self.timeout_s = timeout_s
        self.ready = False  # set when the executor's initialisation has returned

    def listen(self, address: str, port: int) -> None:
        """Serve as the head: accept followers until the process ends.

        Raises:
            OSError: The port is taken; the text says which.
        """
        try:
            server = socket.create_server((address, port), reuse_port=False)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the pair's port {address}:{port} (MASTER_PORT + 1) cannot be used: "
                f"{error.strerror}; choose another MASTER_PORT",
            ) from error
        Thread(target=self._accept, args=(server,), daemon=True, name="TwinsparkPair").start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            connection, peer = server.accept()
            name = f"TwinsparkPair-{peer[0]}"
            Thread(target=self._follow, args=(connection, peer[0]), daemon=True, name=name).start()

    def _follow(self, connection: socket.socket, peer: str) -> None:
        """Watch one follower; a stranger who does not greet is not one, and may go as it came."""
        with connection:
            connection.settimeout(10)
            try:
                greeting = connection.recv(64)
            except OSError:
                return
            if not greeting.startswith(HELLO):
                return
            connection.settimeout(None)
            watch_for_silence(connection, self.timeout_s)
            logger.info("twinspark: %s joined the pair (%s)", peer, greeting.decode().strip())
            self._lost(f"the follower at {peer} is gone: {until_closed(connection)}")

    def join(self, address: str, port: int, rank: int) -> None:
        """Serve as a follower: keep asking for the head, then watch it."""
        target = self._hold
        Thread(target=target, args=(address, port, rank), daemon=True, name="TwinsparkPair").start()

    def _hold(self, address: str, port: int, rank: int) -> None:
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=5)
                break
            except OSError:
                time.sleep(0.5)  # the head is started after its followers
        with connection:
            connection.settimeout(None)
            watch_for_silence(connection, self.timeout_s)
            connection.sendall(HELLO + f"rank {rank}\n".encode())
            self._lost(f"the head at {address} is gone: {until_closed(connection)}")

    def _lost(self, reason: str) -> None:
        executor = self.executor
        if getattr(executor, "shutting_down", False):
            return
        logger.error(
            "TWINSPARK: %s; this node's engine ends too, so that both start afresh", reason
        )
        if not self.ready:
            # Initialisation waits for the peer and can be interrupted by nothing else. The local
            # workers see their death pipe close and end by themselves.
            os._exit(1)
        executor.is_failed = True
        callback, executor.failure_callback = executor.failure_callback, None
        if callback is not None:
            callback()
        else:
            executor.shutdown()  # headless: ends the inline monitor, which raises


def paired(init_executor: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `_init_executor`: connect the nodes before anything waits for them."""

    @functools.wraps(init_executor)
    def init(self: Any) -> None:  # noqa: ANN401 - vLLM's
        parallel = self.parallel_config
        if parallel.nnodes_within_dp < 2:
            init_executor(self)
            return
        pair = Pair(self, int(os.environ.get("TWINSPARK_PAIR_TIMEOUT_S", DEFAULT_TIMEOUT_S)))
        port = port_of(parallel.master_port)
        if parallel.node_rank_within_dp == 0:
            pair.listen(parallel.master_addr, port)
        else:
            pair.join(parallel.master_addr, port, parallel.node_rank)
        init_executor(self)
        pair.ready = True

    return init


def _install(edit: Edit) -> None:
    name = "MultiprocExecutor._init_executor"
    edit.replace(name, paired(edit.original(name)))


def _applies(_: Context) -> str | None:
    if os.environ.get("TWINSPARK_PAIR_TIMEOUT_S") == "0":
        return "TWINSPARK_PAIR_TIMEOUT_S=0 switches it off"
    return None


PATCH = Patch(
    id="pair-liveness",
    title="One node dies and the other waits for ever",
    layer="executor",
    targets=(INIT,),
    upstream_sha256=pinned(
        INIT, "vllm.v1.executor.multiproc_executor:MultiprocExecutor.register_failure_callback"
    ),
    vllm=("0.27.1",),
    symptom="A dead follower is noticed at the next request while /health says 200; after the "
    "death of the head its follower stays up, and a restarted head waits for it in vain.",
    cause="multiproc_executor.py:279-301 watches the sentinels of local workers only; a worker's "
    "dequeue of the head's broadcast has no limit (line 1001).",
    fix="One connection from each follower to MASTER_PORT + 1 on the head, before the workers "
    "start. Its end fails the executor on either side, and the units start both again.",
    upstream="Not proposed; #53597 adds an error pipe for local workers only.",
    remove_when="Killing either node's engine makes the other's exit within a minute.",
    constraint="Two nodes without Ray: nothing else sees both.",
    applies=_applies,
    install=_install,
)
