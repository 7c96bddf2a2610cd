"""The yardstick of checkpoint_copy.py: the same files by bare sockets, without any checks.

    checkpoint_raw_socket.py send DIR ADDR,ADDR PORT STREAMS
    checkpoint_raw_socket.py receive DIR ADDR,ADDR PORT STREAMS    prints the seconds of the
    transfer

Each stream carries an equal, contiguous share of every file, with sendfile on one side and recv
into positioned writes on the other: what any copy over these sockets to these disks has to do.
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

BUFFER = 2**20


def share(size: int, stream: int, streams: int) -> tuple[int, int]:
    """Offset and length of one stream's part of a file."""
    begin, end = size * stream // streams, size * (stream + 1) // streams
    return begin, end - begin


def send(root: Path, connection: socket.socket) -> None:
    """Serve one stream: its number and their count come as two bytes, then all shares go out."""
    number, streams = connection.recv(2, socket.MSG_WAITALL)
    with connection:
        for path in sorted(root.glob("*.bin")):
            offset, length = share(path.stat().st_size, number, streams)
            connection.sendall(path.stat().st_size.to_bytes(8, "big"))
            with path.open("rb") as stream:
                connection.sendfile(stream, offset, length)


def receive(root: Path, address: str, port: int, number: int, streams: int) -> None:
    """Receive one stream into numbered files."""
    buffer = memoryview(bytearray(BUFFER))
    with socket.create_connection((address, port)) as connection:
        connection.sendall(bytes([number, streams]))
        index = 0
        while head := connection.recv(8, socket.MSG_WAITALL):
            offset, left = share(int.from_bytes(head, "big"), number, streams)
            target = os.open(root / f"{index:03d}.bin", os.O_WRONLY | os.O_CREAT, 0o644)
            while left:
                filled, limit = 0, min(BUFFER, left)
                while filled < limit and (count := connection.recv_into(buffer[filled:limit])):
                    filled += count
                os.pwrite(target, buffer[:filled], offset)
                offset, left = offset + filled, left - filled
            os.close(target)
            index += 1


def main() -> int:
    """Run one side."""
    side, root, rails, port, streams = (
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3].split(","),
        *map(int, sys.argv[4:6]),
    )
    threads = []
    if side == "send":
        listeners = [socket.create_server((address, port)) for address in rails]
        print("ready", flush=True)
        for number in range(streams):
            connection, _ = listeners[number % len(rails)].accept()
            threads.append(threading.Thread(target=send, args=(root, connection)))
            threads[-1].start()
    else:
        root.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        for number in range(streams):
            place = (root, rails[number % len(rails)], port, number, streams)
            threads.append(threading.Thread(target=receive, args=place))
            threads[-1].start()
    for thread in threads:
        thread.join()
    if side == "receive":
        print(time.monotonic() - begun, time.process_time())
    return 0


if __name__ == "__main__":
    sys.exit(main())
