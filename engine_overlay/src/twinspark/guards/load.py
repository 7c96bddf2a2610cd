"""Neighbours on purpose: requests that decode or prefill while a guard asks its question."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twinspark.guards.client import ForeignError, GuardError, SlowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinspark.guards.client import Client, Prompt

RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def foreign_load(client: Client) -> int:
    """Requests that the server runs or queues; call it with none of our own in flight.

    Raises:
        ForeignError: The server does not say.
    """
    metrics = client.metrics()
    if missing := [name for name in RUNNING if name not in metrics]:
        raise ForeignError(f"/metrics: no {missing[0]}")
    return int(sum(metrics[name] for name in RUNNING))


def wait_idle(client: Client, tries: int = 5, pause: float = 0.3) -> int:
    """Wait briefly for an idle server; the load that was left (0 = idle). One request a try."""
    load = foreign_load(client)
    for _ in range(tries - 1):
        if load == 0:
            break
        time.sleep(pause)
        load = foreign_load(client)
    return load


class Neighbour:
    """A background request; `alive` says whether it was still in flight."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()
        self.leave = threading.Event()
        self.error: GuardError | None = None
        self.chunks = 0

    @property
    def alive(self) -> bool:
        """In flight, and past its first token where it streams."""
        return self.started.is_set() and not self.ended.is_set()


def _decode(client: Client, prompt: Prompt, tokens: int, salt: str, me: Neighbour) -> None:
    try:
        for _ in client.stream(prompt, tokens, salt, ignore_eos=True):
            me.chunks += 1
            me.started.set()
            if me.leave.is_set():
                break
    except GuardError as error:
        me.error = error
    finally:
        me.ended.set()
        me.started.set()


@contextmanager
def decoding(client: Client, prompt: Prompt, tokens: int, salt: str) -> Iterator[Neighbour]:
    """A neighbour that decodes; entered once its first token has come, ended when left.

    Raises:
        GuardError: Its request failed before the first token.
        SlowError: No first token within the client's limit.
    """
    neighbour = Neighbour()
    arguments = (client, prompt, tokens, salt, neighbour)
    thread = threading.Thread(target=_decode, args=arguments, daemon=True)
    thread.start()
    try:
        if not neighbour.started.wait(client.plan.seconds):
            raise SlowError(f"the decoding neighbour had no token in {client.plan.seconds:g} s")
        if neighbour.error:
            raise neighbour.error
        yield neighbour
    finally:
        neighbour.leave.set()
        thread.join(client.plan.seconds)


def _prefill(client: Client, prompt: Prompt, salt: str, me: Neighbour, delay: float) -> None:
    try:
        time.sleep(delay)
        me.started.set()
        client.complete(prompt, 1, salt)
    except GuardError as error:
        me.error = error
    finally:
        me.ended.set()


@contextmanager
def prefilling(
    client: Client, doorkeeper: Prompt, companion: Prompt, salt: str, lead: float = 0.1
) -> Iterator[list[Neighbour]]:
    """Two neighbours that prefill, timed so that a question meets a step with a prefill in it.

    The scheduler serves running requests first, and a long prefill takes whole steps: a question
    sent beside one waits until it is done. So a doorkeeper (about one step and a half) is sent
    first; within its time come the caller's question and then the companion (several steps).
    The doorkeeper's last half step admits both, and the companion prefills beside the question.

    Raises:
        GuardError: A neighbour's request failed.
    """
    pair = [Neighbour(), Neighbour()]
    threads = [
        threading.Thread(target=_prefill, args=arguments, daemon=True)
        for arguments in (
            (client, doorkeeper, f"{salt}-a", pair[0], 0.0),
            (client, companion, f"{salt}-b", pair[1], lead * 2),
        )
    ]
    for thread in threads:
        thread.start()
    time.sleep(lead)
    try:
        yield pair
    finally:
        for thread in threads:
            thread.join(client.plan.seconds)
    for neighbour in pair:
        if neighbour.error:
            raise neighbour.error
