"""The protocol of a copy: plain TCP over the rails, opened by proof of a one-time token.

Both sides prove that they hold the token (HMAC over the other's nonce), so it never travels. The
data is not encrypted: the rails are a cable between the two nodes, the weights are public, and
every byte is held against SHA-256 afterwards. After the handshake a client sends one request a
line, as JSON; the answer is its length as 8 bytes, then the bytes.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import stat
import sys
from typing import TYPE_CHECKING

from twinspark.checkpoint.errors import CannotRunError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 29571
CHUNK = (
    64 * 2**20
)  # bytes a request: a cut rail loses the rest of one chunk a stream, and resumes within it
LONGEST_REQUEST = 8192
_NONCE = 32


class PeerError(Exception):
    """The other side broke off or is not who it must be; the stream may be opened anew."""


def new_token() -> str:
    """A token for one copy."""
    return secrets.token_hex(32)


def read_token(source: Path) -> bytes:
    """Read the token, once: a file is removed when it is taken, `-` is standard input.

    Raises:
        CannotRunError: there is none, it is too short, or others can read the file.
    """
    is_file = str(source) != "-"
    try:
        if is_file and source.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CannotRunError(f"{source} can be read by others: chmod 600 it")
        text = source.read_text(encoding="ascii") if is_file else sys.stdin.readline()
        token = text.strip()
        if len(token) < 32:
            raise CannotRunError(
                f"{source}: the token has fewer than 32 characters: "
                "make one with `openssl rand -hex 32`"
            )
        if is_file:
            source.unlink()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRunError(f"{source}: no token can be read: {error}") from error
    return token.encode("ascii", errors="replace")


def tune(connection: socket.socket, stall: float) -> None:
    """Set the timeout (seconds) after which a silent peer counts as gone; send at once."""
    connection.settimeout(stall)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall * 1000))


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes.

    Raises:
        PeerError: the peer closed or stalled.
    """
    parts = bytearray()
    while len(parts) < count:
        try:
            piece = connection.recv(count - len(parts))
        except OSError as error:
            raise PeerError(f"stream broke: {error}") from error
        if not piece:
            raise PeerError("the other side closed the stream")
        parts += piece
    return bytes(parts)


def receive_line(connection: socket.socket) -> bytes | None:
    """One request without its newline; None when the peer has closed between two requests.

    Raises:
        PeerError: the stream broke, or the line is longer than any request.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        try:
            piece = connection.recv(1)
        except OSError as error:
            raise PeerError(f"stream broke: {error}") from error
        if not piece:
            return None
        line += piece
        if len(line) > LONGEST_REQUEST:
            raise PeerError("a request is too long")
    return bytes(line[:-1])


def _proof(token: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, role + nonce, "sha256")


def admit(connection: socket.socket, token: bytes) -> None:
    """The serving side's half of the handshake.

    Raises:
        PeerError: the client does not hold the token.
    """
    nonce = os.urandom(_NONCE)
    connection.sendall(nonce)
    answer = receive(connection, 32 + _NONCE)
    if not hmac.compare_digest(answer[:32], _proof(token, b"pull", nonce)):
        raise PeerError("a client without the token")
    connection.sendall(_proof(token, b"serve", answer[32:]))


def connect(address: str, port: int, token: bytes, stall: float) -> socket.socket:
    """Open a stream: the pulling side's half of the handshake.

    Raises:
        PeerError: nobody answers there, or it is not the side that holds the token.
    """
    try:
        connection = socket.create_connection((address, port), timeout=min(stall, 5.0))
    except OSError as error:
        raise PeerError(f"{address}:{port}: {error}") from error
    try:
        tune(connection, stall)
        nonce = receive(connection, _NONCE)
        mine = os.urandom(_NONCE)
        connection.sendall(_proof(token, b"pull", nonce) + mine)
        proven = hmac.compare_digest(receive(connection, 32), _proof(token, b"serve", mine))
    except (OSError, PeerError) as error:
        connection.close()
        raise PeerError(f"{address}:{port}: {error}") from error
    if not proven:
        connection.close()
        raise PeerError(f"{address}:{port} does not hold the token")
    return connection


def ask(connection: socket.socket, request: dict[str, object]) -> int:
    """Send a request; returns the number of bytes that follow.

    Raises:
        PeerError: the stream broke.
    """
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
    except OSError as error:
        raise PeerError(f"stream broke: {error}") from error
    return int.from_bytes(receive(connection, 8), "big")
