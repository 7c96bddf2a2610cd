"""A Hub of our own: the parts of its interface that huggingface_hub uses, with faults.

python tests/checkpoint/fake_hub.py DIRECTORY ADDRESS PORT     serves a folder until it is ended
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "deepseek-ai/Small"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """One repository with one commit.

    Attributes:
        files: Content by path; those that end in `.safetensors` are listed as LFS files.
        break_after: Bytes of a file after which the connection is cut, so many times.
        ranges: The `Range` headers that were asked for, by path.
    """

    commit: str
    files: dict[str, bytes]
    repository: str = REPOSITORY
    break_after: int = 0
    breaks: int = 0
    ignore_ranges: bool = False
    listed_sha: str | None = None
    status: int = 200
    ranges: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0
    address: tuple[str, int] = ("127.0.0.1", 0)

    def __post_init__(self) -> None:
        hub = self
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(self.address, Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        if path.startswith(f"/api/models/{self.repository}/commits/"):
            rows = [
                {
                    "id": self.commit,
                    "title": "t",
                    "message": "",
                    "date": "2026-08-01T00:00:00.000Z",
                    "authors": [],
                }
            ]
            self._json(request, rows)
        elif path == f"/api/models/{self.repository}/revision/{self.commit}":
            self._json(request, self._info())
        elif match := re.fullmatch(rf"/{self.repository}/resolve/{self.commit}/(.+)", path):
            self._file(request, match[1])
        else:
            request.send_error(404)

    def _info(self) -> dict[str, object]:
        siblings = []
        for name, content in self.files.items():
            row: dict[str, object] = {
                "rfilename": name,
                "size": len(content),
                "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),  # noqa: S324 - git's
            }
            if name.endswith(".safetensors"):
                row["lfs"] = {
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "size": len(content),
                    "pointerSize": 134,
                }
            siblings.append(row)
        return {"id": self.repository, "sha": self.listed_sha or self.commit, "siblings": siblings}

    def _json(self, request: BaseHTTPRequestHandler, document: object) -> None:
        body = json.dumps(document).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        if self.status != 200 or name not in self.files:
            request.send_error(self.status if self.status != 200 else 404)
            return
        content, wish = self.files[name], request.headers.get("Range")
        begin = (
            int(wish.removeprefix("bytes=").removesuffix("-"))
            if wish and not self.ignore_ranges
            else 0
        )
        body = content[begin:]
        with self._lock:
            self.ranges.append((name, wish))
            cut = self.breaks > 0 and len(body) > self.break_after > 0
            self.breaks -= cut
            self.sent += self.break_after if cut else len(body)
        request.send_response(206 if begin else 200)
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.break_after] if cut else body)
        if cut:
            request.wfile.flush()
            request.close_connection = True


def main(directory: str, address: str, port: str) -> None:
    """Serve the files of a folder as one commit."""
    files = {path.name: path.read_bytes() for path in Path(directory).iterdir() if path.is_file()}
    FakeHub(COMMIT, files, address=(address, int(port)))
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
