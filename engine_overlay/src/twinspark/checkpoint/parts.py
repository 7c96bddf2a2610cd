"""Files on their way: part files beside the checkpoint, and a journal of what has arrived."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from twinspark.checkpoint.manifest import PARTS_NAME
from twinspark.checkpoint.strict import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from twinspark.checkpoint.manifest import FileEntry

JOURNAL_NAME = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes [offset, offset + length) of a file."""

    path: str
    offset: int
    length: int

    def head(self, count: int) -> Range:
        """The first `count` bytes."""
        return Range(self.path, self.offset, count)

    def tail(self, count: int) -> Range | None:
        """All but the first `count` bytes; None if nothing is left."""
        if count >= self.length:
            return None
        return Range(self.path, self.offset + count, self.length - count)


class Store:
    """Part files of one copy: the journal says what arrived, SHA-256 says whether it is right."""

    def __init__(self, root: Path, wanted: Iterable[FileEntry]) -> None:
        """Open the store; parts of files with another digest do not count."""
        self._folder = root / PARTS_NAME
        self._journal = self._folder / JOURNAL_NAME
        self._lock = threading.Lock()
        self._entries = {entry.path: entry for entry in wanted}
        self._arrived: dict[str, list[tuple[int, int]]] = {}
        self._folder.mkdir(exist_ok=True)
        if self._journal.is_file():
            for line in self._journal.read_text(encoding="utf-8", errors="replace").splitlines():
                self._remember(line)
        self._stream: IO[str] = self._journal.open("a", encoding="utf-8")

    def _remember(self, line: str) -> None:
        if (values := row(line, str, str, int, int)) is None:
            return
        path, sha256, offset, length = values
        entry = self._entries.get(path)
        if entry is not None and entry.sha256 == sha256 and self.part(path).is_file():
            self._arrived.setdefault(path, []).append((offset, length))

    def part(self, path: str) -> Path:
        """Where a file grows."""
        return self._folder / "files" / path

    def open(self, path: str) -> IO[bytes]:
        """A file's part, made on first use, for positioned writes."""
        part = self.part(path)
        part.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return os.fdopen(descriptor, "r+b", buffering=0)

    def record(self, piece: Range) -> None:
        """Note a range that is written."""
        if not piece.length:
            return
        values = [piece.path, self._entries[piece.path].sha256, piece.offset, piece.length]
        with self._lock:
            self._stream.write(json.dumps(values) + "\n")
            self._stream.flush()

    def resumed(self) -> int:
        """Bytes that earlier runs received of the wanted files."""
        return sum(end - begin for path in self._entries for begin, end in self._merged(path))

    def _merged(self, path: str) -> list[tuple[int, int]]:
        merged: list[tuple[int, int]] = []
        for offset, length in sorted(self._arrived.get(path, [])):
            end = offset + length
            if merged and offset <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((offset, end))
        return merged

    def missing(self, wanted: Iterable[FileEntry], most: int) -> Iterator[Range]:
        """The ranges that have not arrived, `most` bytes each; empty files are made at once."""
        for entry in wanted:
            if entry.size == 0:
                self.open(entry.path).close()
            position = 0
            for begin, end in [*self._merged(entry.path), (entry.size, entry.size)]:
                while position < begin:
                    length = min(most, begin - position)
                    yield Range(entry.path, position, length)
                    position += length
                position = max(position, end)

    def drop(self, path: str) -> None:
        """Throw a part away, because its digest is wrong."""
        self.part(path).unlink(missing_ok=True)
        self._arrived.pop(path, None)

    def close(self) -> None:
        """Stop recording; what has arrived stays."""
        self._stream.close()

    def remove(self) -> None:
        """Remove the store: everything is in its place."""
        self.close()
        shutil.rmtree(self._folder)
