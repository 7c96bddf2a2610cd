"""SHA-256 of many large files at once, resumable after an interruption.

Threads suffice: reading and hashing both release the interpreter's lock. One file is the unit of
resumption, since hashlib cannot save a half-done digest: an interrupted run repeats at most the
files that were open (3.7 GB each).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeVar

from twinspark.checkpoint.errors import CannotRunError
from twinspark.checkpoint.manifest import STATE_NAME
from twinspark.checkpoint.strict import row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from io import FileIO
    from pathlib import Path

    from twinspark.checkpoint.progress import Meter

Item = TypeVar("Item")
Result = TypeVar("Result")
BUFFER = 2**21  # bytes a thread; a direct read this long keeps the disk busy
MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Hashed:
    """A digest with the size (bytes) and modification time (ns) that the file had."""

    size: int
    mtime_ns: int
    sha256: str


class State:
    """Digests that an earlier, interrupted run of the same tree has finished; a line of JSON each.

    A line counts only while size and modification time still fit. Whether a byte flipped on the
    disk since, a full run tells: a finished run removes the state.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, Hashed] = {}
        self._stream: IO[str] | None = None
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                self._remember(line)

    def _remember(self, line: str) -> None:
        if (values := row(line, str, int, int, str)) is not None:
            path, size, mtime_ns, sha256 = values
            self._known[path] = Hashed(size, mtime_ns, sha256)

    def recall(self, path: str, stat: os.stat_result) -> str | None:
        """The digest of an unchanged file that was finished before."""
        known = self._known.get(path)
        if known is None or (known.size, known.mtime_ns) != (stat.st_size, stat.st_mtime_ns):
            return None
        return known.sha256

    def record(self, path: str, done: Hashed) -> None:
        """Remember a finished file."""
        if self._path is None:
            return
        with self._lock:
            if self._stream is None:
                self._stream = self._path.open("a", encoding="utf-8")
            values = [path, done.size, done.mtime_ns, done.sha256]
            self._stream.write(json.dumps(values) + "\n")
            self._stream.flush()

    def close(self, *, finished: bool) -> None:
        """Stop recording; a finished run leaves no state behind."""
        if self._stream is not None:
            self._stream.close()
        if finished and self._path is not None:
            self._path.unlink(missing_ok=True)


def state_of(root: Path) -> State:
    """The state of a checkpoint, kept beside its files; none where the directory is read-only."""
    return State(root / STATE_NAME if os.access(root, os.W_OK) else None)


def exceeds_cache(total: int) -> bool:
    """Whether `total` bytes exceed half of the memory, so that caching them is of no use.

    GB10's GPU takes its memory from the same pool: a page cache full of shards is what the next
    engine start trips over.
    """
    return total > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def drop_cache(descriptor: int, offset: int = 0, length: int = 0) -> None:
    """Take bytes of an open file out of the page cache; all of them by default."""
    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def set_direct(descriptor: int, *, on: bool) -> bool:
    """Read past the page cache or through it; whether the file system does as told."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    flags = flags | os.O_DIRECT if on else flags & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    except OSError:
        return False
    return True


def fill(stream: FileIO, buffer: mmap.mmap) -> Iterator[int]:
    """Read a file into `buffer`, again and again; yields how many bytes each read brought.

    Direct I/O where the file system has it: it costs no copy in the kernel (half of the processor
    time of reading and hashing), leaves GB10's memory alone, and reads what is on the disk.
    """
    direct = set_direct(stream.fileno(), on=True)
    while True:
        try:
            count = stream.readinto(buffer)
        except OSError as error:
            # the file system wants another alignment: go on where it stopped
            if error.errno != errno.EINVAL or not direct:
                raise
            direct = not set_direct(stream.fileno(), on=False)
            continue
        if not count:
            return
        yield count


def sha256_of(path: Path, meter: Meter, *, drop: bool = False) -> Hashed:
    """Hash one file.

    Args:
        path: The file.
        meter: Told of every read.
        drop: Take the file out of the page cache afterwards.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    # an anonymous mapping is aligned to pages, as direct I/O wants it
    with (
        path.open("rb", buffering=0) as stream,
        mmap.mmap(-1, BUFFER) as buffer,
        memoryview(buffer) as view,
    ):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        for count in fill(stream, buffer):
            digest.update(view[:count])
            meter.add(count)
        stat = os.fstat(stream.fileno())
        if drop:
            drop_cache(stream.fileno())
    return Hashed(stat.st_size, stat.st_mtime_ns, digest.hexdigest())


def default_workers() -> int:
    """Two threads a core, as one hashes while another waits for the disk, and 8 at most.

    More would gain little on GB10: its disk reads perhaps 7 to 14 GB/s, and 8 cores hash 12 to 16
    GB/s (1.5 to 2 each). But each thread has a file open, which is what an interruption repeats: at
    most 8 of the 48 shards, where 40 threads repeat 40. Reasoned, not measured on a Spark.
    """
    return min(2 * len(os.sched_getaffinity(0)), MOST_WORKERS)


def sha256_all(
    root: Path,
    files: Mapping[str, os.stat_result],
    *,
    meter: Meter,
    workers: int,
    state: State,
) -> dict[str, str]:
    """SHA-256 of each of `files` (paths below `root`), largest first: the threads end together.

    Raises:
        CannotRunError: a file cannot be read, or changed while it was being read.
    """
    drop = exceeds_cache(sum(stat.st_size for stat in files.values()))

    def one(path: str) -> tuple[str, str]:
        stat = files[path]
        if (known := state.recall(path, stat)) is not None:
            meter.add(stat.st_size)
            return path, known
        try:
            done = sha256_of(root / path, meter, drop=drop)
        except OSError as error:
            raise CannotRunError(f"{root / path} cannot be read: {error.strerror}") from error
        if (done.size, done.mtime_ns) != (stat.st_size, stat.st_mtime_ns):
            raise CannotRunError(f"{root / path} changed while it was read: stop what writes it")
        state.record(path, done)
        return path, done.sha256

    order = sorted(files, key=lambda path: files[path].st_size, reverse=True)
    return dict(run_all(one, order, workers))


def run_all(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> list[Result]:
    """`work` on every item by a pool of threads; the first failure cancels what has not begun."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
