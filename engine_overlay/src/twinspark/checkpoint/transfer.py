"""Moving the bytes: all streams of all rails take ranges from one queue."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinspark.checkpoint import wire
from twinspark.checkpoint.errors import CannotRunError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from twinspark.checkpoint import parts
    from twinspark.checkpoint.manifest import FileEntry
    from twinspark.checkpoint.progress import Meter

BUFFER = 2**20


@dataclass(frozen=True, slots=True)
class Peer:
    """Where the other side serves.

    Attributes:
        addresses: One a rail.
        port: The same on all.
        token: The one-time token.
        streams: TCP streams a rail.
        stall: Seconds of silence after which a stream counts as broken.
        patience: Seconds that a stream goes on trying to reconnect before it gives up.
    """

    addresses: tuple[str, ...]
    port: int
    token: bytes
    streams: int = 4
    stall: float = 10.0
    patience: float = 60.0


class Transfer:
    """The queue of ranges that all streams work on."""

    def __init__(
        self, peer: Peer, store: parts.Store, wanted: Sequence[FileEntry], meter: Meter
    ) -> None:
        self._peer, self._store, self._meter = peer, store, meter
        self._work = deque(store.missing(wanted, wire.CHUNK))
        self._open = 0
        self._ready = threading.Condition()
        self.received = self.broken = 0
        self.complaint = ""

    def run(self) -> None:
        """Receive everything.

        Raises:
            CannotRunError: no rail answers any more, or the disk does not take the bytes.
        """
        threads = [
            threading.Thread(target=self._stream, args=(number,), daemon=True)
            for number in range(self._peer.streams * len(self._peer.addresses))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._work or self._open:
            raise CannotRunError(
                f"the copy broke off: {self.complaint}. Run it again to go on from here"
            )

    def _take(self) -> parts.Range | None:
        with self._ready:
            while not self._work and self._open:
                self._ready.wait()
            if not self._work:
                return None
            self._open += 1
            return self._work.popleft()

    def _give_back(self, rest: parts.Range | None) -> None:
        with self._ready:
            self._open -= 1
            if rest is not None:
                self._work.appendleft(rest)
            self._ready.notify_all()

    def _stream(self, number: int) -> None:
        """One stream: begins on its own rail and moves to the next one when that rail fails."""
        buffer = memoryview(bytearray(BUFFER))
        connection: socket.socket | None = None
        attempt, alive = number, time.monotonic()
        while (piece := self._take()) is not None:
            rest: parts.Range | None = piece
            try:
                connection = connection or self._connect(attempt)
                rest = self._receive(connection, piece, buffer)
                if rest is not None:
                    self.complaint = "the other side closed a stream or went silent"
            except wire.PeerError as error:
                self.complaint = str(error)
            except OSError as error:
                self.complaint = f"the disk refuses: {error}"
                self._give_back(rest)
                return
            self._give_back(rest)
            if rest is None:
                alive = time.monotonic()
                continue
            if connection is not None:
                connection.close()
                connection = None
            attempt += 1
            with self._ready:
                self.broken += 1
            if time.monotonic() - alive > self._peer.patience:
                return
            time.sleep(0.2)
        if connection is not None:
            connection.close()

    def _connect(self, attempt: int) -> socket.socket:
        peer = self._peer
        address = peer.addresses[attempt % len(peer.addresses)]
        return wire.connect(address, peer.port, peer.token, peer.stall)

    def _receive(
        self, connection: socket.socket, piece: parts.Range, buffer: memoryview
    ) -> parts.Range | None:
        """Receive one range; returns what is left of it when the stream breaks.

        Raises:
            PeerError: before the first byte.
            OSError: the disk failed.
        """
        promised = wire.ask(
            connection,
            {"op": "read", "path": piece.path, "offset": piece.offset, "length": piece.length},
        )
        if promised != piece.length:
            raise wire.PeerError("the other side answers something else")
        with self._store.open(piece.path) as stream:
            done = self._drain(connection, stream.fileno(), piece, buffer)
        self._store.record(piece.head(done))
        with self._ready:
            self.received += done
        return piece.tail(done)

    def _drain(
        self, connection: socket.socket, target: int, piece: parts.Range, buffer: memoryview
    ) -> int:
        done = 0
        while done < piece.length:
            filled, limit = 0, min(len(buffer), piece.length - done)
            try:
                while filled < limit and (count := connection.recv_into(buffer[filled:limit])):
                    filled += count
            except OSError:
                limit = -1
            os.pwrite(target, buffer[:filled], piece.offset + done)
            done += filled
            self._meter.add(filled)
            if filled < limit or limit < 0:
                break
        return done
