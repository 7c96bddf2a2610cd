"""The side that has the checkpoint: serves ranges of it until one `pull` is content."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.arguments import seconds
from twinspark.checkpoint import hashing, stamp, verify, wire
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, Manifest, read, require_directory
from twinspark.checkpoint.options import addresses, port
from twinspark.checkpoint.strict import Reader, read_small

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

MOST_STREAMS = 64
STALL = 30.0  # seconds: longer than the pulling side's, which is the one that decides


class Server:
    """Serves one verified checkpoint to whoever holds the token.

    Attributes:
        port: The port that all addresses listen on.
        admitted: Streams that proved the token so far.
        sent: Bytes of file data sent so far.
    """

    def __init__(
        self, root: Path, manifest: Manifest, addresses: Sequence[str], port: int, token: bytes
    ) -> None:
        """Listen on every address; port 0 takes a free one.

        Raises:
            CannotRunError: an address is not this machine's, or the port is taken.
        """
        self._root, self._token = root, token
        self._text = read_small(root / MANIFEST_NAME)
        self._files = manifest.by_path()
        self._drop = hashing.exceeds_cache(manifest.total)
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._active = threading.BoundedSemaphore(MOST_STREAMS)
        self._last = time.monotonic()
        self.admitted = self.sent = self._open = 0
        self.port = port
        self._listeners: list[socket.socket] = []
        for address in addresses:
            try:
                listener = socket.create_server((address, self.port), backlog=MOST_STREAMS)
            except OSError as error:
                self.close()
                raise CannotRunError(f"cannot listen on {address}:{self.port}: {error}") from error
            self.port = listener.getsockname()[1]
            self._listeners.append(listener)
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def wait(self, idle: float) -> bool:
        """Serve until a client is done (True) or nobody has been connected for `idle` s (False)."""
        while not self._finished.wait(0.2):
            with self._lock:
                quiet = time.monotonic() - self._last if self._open == 0 else 0.0
            if quiet > idle:
                return False
        return True

    def close(self) -> None:
        """Stop listening."""
        self._finished.set()
        for listener in self._listeners:
            # wakes the thread that is in accept, which closing alone would not
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._finished.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if not self._active.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                wire.tune(connection, STALL)
                wire.admit(connection, self._token)
                with self._lock:
                    self.admitted += 1
                    self._open += 1
                try:
                    self._answer(connection)
                finally:
                    with self._lock:
                        self._open -= 1
                        self._last = time.monotonic()
        except (wire.PeerError, CheckpointError, OSError) as error:
            print(f"twinspark checkpoint: a stream ended: {error}", file=sys.stderr)
        finally:
            self._active.release()

    def _answer(self, connection: socket.socket) -> None:
        while (line := wire.receive_line(connection)) is not None:
            reader = Reader("request")
            request = reader.load(line)
            operation = reader.text(request, "op")
            if operation == "manifest":
                connection.sendall(len(self._text).to_bytes(8, "big") + self._text)
            elif operation == "read":
                self._send_range(connection, reader, request)
            elif operation == "done":
                connection.sendall(bytes(8))
                self._finished.set()
            else:
                raise wire.PeerError(f"asks for {operation[:40]!r}, which is unknown")

    def _send_range(
        self, connection: socket.socket, reader: Reader, request: dict[str, object]
    ) -> None:
        path, offset = reader.text(request, "path"), reader.count(request, "offset")
        length = reader.count(request, "length")
        entry = self._files.get(path)
        if entry is None or offset + length > entry.size:
            raise wire.PeerError(f"asks for bytes that no file of the manifest has: {path[:80]!r}")
        connection.sendall(length.to_bytes(8, "big"))
        with (self._root / path).open("rb") as stream:
            sent = connection.sendfile(stream, offset, length) if length else 0
            if self._drop:
                hashing.drop_cache(stream.fileno(), offset, length)
        with self._lock:
            self.sent += sent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `serve`."""
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--listen", type=addresses, required=True, metavar="ADDR,ADDR", help="one address a rail"
    )
    parser.add_argument("--port", type=port, metavar="N", default=wire.DEFAULT_PORT)
    parser.add_argument(
        "--token-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="read and removed; - is standard input",
    )
    parser.add_argument(
        "--idle",
        type=seconds,
        default=300.0,
        metavar="S",
        help="end when nobody is connected so long",
    )
    parser.add_argument(
        "--beside-engine", action="store_true", help="go on although an engine is up here"
    )


def open_checkpoint(root: Path) -> Manifest:
    """The manifest of a checkpoint that may be handed on: verified, and unchanged since.

    Raises:
        CheckpointError: it is not.
    """
    stamp.check(root)
    return read(root / MANIFEST_NAME)


def run(args: argparse.Namespace) -> int:
    """Serve one pull."""
    require_directory(args.directory)
    verify.refuse_beside_engine(verify.Options(beside_engine=args.beside_engine), "serving a copy")
    manifest = open_checkpoint(args.directory)
    token = wire.read_token(args.token_file)
    server = Server(args.directory, manifest, args.listen, args.port, token)
    try:
        where = ",".join(args.listen)
        print(f"serving {args.directory} on {where} port {server.port}", flush=True)
        if not server.wait(args.idle):
            raise CannotRunError(f"nobody finished a copy: no stream for {args.idle:.0f} s")
    finally:
        server.close()
    print(f"served {server.sent} bytes over {server.admitted} streams")
    return 0
