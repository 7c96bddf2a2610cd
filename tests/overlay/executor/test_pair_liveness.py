"""The pair's connection, over real sockets on loopback and without an engine."""

from __future__ import annotations

import socket
import time
from threading import Event

import pytest

from twinspark.patches.executor import pair_liveness as pl


class Executor:
    """The part of vLLM's executor that the pair touches."""

    def __init__(self) -> None:
        self.is_failed = False
        self.shutting_down = False
        self.failed = Event()
        self.stopped = Event()
        self.failure_callback: object = None

    def shutdown(self) -> None:
        self.stopped.set()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def head(port: int) -> Executor:
    executor = Executor()
    executor.failure_callback = executor.failed.set
    pair = pl.Pair(executor)
    pair.ready = True
    pair.listen("127.0.0.1", port)
    return executor


def greeted(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(pl.HELLO + b"rank 1\n")
    return connection


def test_head__fails_its_engine_when_the_follower_is_gone(port: int) -> None:
    executor = head(port)
    connection = greeted(port)
    assert not executor.failed.wait(0.3)
    connection.close()
    assert executor.failed.wait(5)
    assert executor.is_failed
    assert executor.failure_callback is None


def test_head__does_not_care_about_a_stranger(port: int) -> None:
    executor = head(port)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n")
    socket.create_connection(("127.0.0.1", port)).close()
    assert not executor.failed.wait(0.5)


def test_head__ignores_the_end_of_a_follower_while_it_shuts_down(port: int) -> None:
    executor = head(port)
    connection = greeted(port)
    time.sleep(0.2)
    executor.shutting_down = True
    connection.close()
    assert not executor.failed.wait(0.5)


def test_follower__waits_for_a_head_that_comes_later_and_ends_with_it(port: int) -> None:
    executor = Executor()
    pair = pl.Pair(executor)
    pair.ready = True
    pair.join("127.0.0.1", port, 1)
    time.sleep(0.3)
    with socket.create_server(("127.0.0.1", port)) as server:
        connection, _ = server.accept()
        assert connection.recv(64) == pl.HELLO + b"rank 1\n"
        assert not executor.stopped.wait(0.3)
        connection.close()
    assert executor.stopped.wait(5)
    assert executor.is_failed


def test_head__names_the_port_that_is_taken(port: int) -> None:
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match=rf"{port} \(MASTER_PORT \+ 1\).*choose another"),
    ):
        pl.Pair(Executor()).listen("127.0.0.1", port)


def test_silence__is_bounded_by_the_timeout() -> None:
    with socket.socket() as connection:
        pl.watch_for_silence(connection, 60)
        get = connection.getsockopt
        idle = get(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        interval = get(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        count = get(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert get(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert idle + interval * count <= 60
        assert get(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
