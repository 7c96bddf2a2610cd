"""Progress of a long action: a bar with rich and a terminal, else a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_EVERY = 10.0  # seconds between two lines where there is no terminal


class Meter(Protocol):
    """Counts bytes; called from many threads."""

    def add(self, count: int) -> None:
        """`count` more bytes are done."""


class Silent:
    """A meter that only counts."""

    def __init__(self) -> None:
        self.done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """`count` more bytes are done."""
        with self._lock:
            self.done += count


class Lines(Silent):
    """A meter that writes a line to standard error every `LINE_EVERY` seconds."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__()
        self._title, self._total = title, total
        self._begun = self._last = time.monotonic()

    def add(self, count: int) -> None:
        """`count` more bytes are done."""
        super().add(count)
        now = time.monotonic()
        if now - self._last >= LINE_EVERY:
            self._last = now
            share = 100 * self.done / self._total if self._total else 100.0
            rate = self.done / (now - self._begun) / 1e9
            print(f"{self._title}: {share:.0f} %, {rate:.2f} GB/s", file=sys.stderr, flush=True)


@contextmanager
def meter(title: str, total: int, *, quiet: bool = False) -> Iterator[Meter]:
    """A meter for `total` bytes.

    Args:
        title: What is going on, as a verb with an object.
        total: Bytes to expect.
        quiet: Count only.
    """
    if quiet:
        yield Silent()
        return
    if not sys.stderr.isatty():
        yield Lines(title, total)
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - absent on a bare node
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        yield Lines(title, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)

        class Bar:
            def add(self, count: int) -> None:
                bar.advance(task, count)

        yield Bar()
