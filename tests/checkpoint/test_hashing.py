"""Hashing is right at any size: past the page cache where the file system can, else through it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinspark.checkpoint import hashing
from twinspark.checkpoint.manifest import scan
from twinspark.checkpoint.progress import Silent

if TYPE_CHECKING:
    from io import FileIO


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, hashing.BUFFER, 2 * hashing.BUFFER + 13])
def test_hash__any_size__is_what_hashlib_says(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)  # noqa: S311 - any bytes do
    (tmp_path / "f").write_bytes(data)
    assert hashing.sha256_of(tmp_path / "f", Silent()).sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("cores", "threads"), [(1, 2), (2, 4), (4, 8), (20, 8)])
def test_threads__are_two_a_core_and_few_enough_to_resume(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert hashing.default_workers() == threads


@pytest.mark.parametrize("exceeds", [True, False])
def test_files__leave_the_page_cache_when_they_are_too_large_for_it(
    model: Path, monkeypatch: pytest.MonkeyPatch, *, exceeds: bool
) -> None:
    dropped = []
    monkeypatch.setattr(hashing, "exceeds_cache", lambda _total: exceeds)
    monkeypatch.setattr(
        hashing,
        "drop_cache",
        lambda descriptor: dropped.append(Path(f"/proc/self/fd/{descriptor}").readlink()),
    )
    files = scan(model)
    hashing.sha256_all(model, files, meter=Silent(), workers=2, state=hashing.State(None))
    assert sorted(dropped) == ([model / path for path in files] if exceeds else [])


def test_hash__reads_past_the_page_cache_where_the_file_system_can(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(2 * mmap.PAGESIZE))
    with (tmp_path / "f").open("rb", buffering=0) as stream, mmap.mmap(-1, mmap.PAGESIZE) as buffer:
        can = hashing.set_direct(stream.fileno(), on=True)
        reads = hashing.fill(stream, buffer)
        assert next(reads) == mmap.PAGESIZE
        assert bool(fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_DIRECT) == can


def test_hash__alignment_refused_in_the_middle__goes_on_there_through_the_cache(
    tmp_path: Path,
) -> None:
    data = bytes(range(256)) * 64
    (tmp_path / "f").write_bytes(data)

    class Strict:
        """A file whose second direct read is refused."""

        def __init__(self, stream: FileIO) -> None:
            self.stream, self.turn, self.fileno = stream, 0, stream.fileno

        def readinto(self, buffer: mmap.mmap) -> int:
            self.turn += 1
            if self.turn == 2:
                raise OSError(errno.EINVAL, "alignment")
            return self.stream.readinto(buffer)

    with (tmp_path / "f").open("rb", buffering=0) as stream, mmap.mmap(-1, 4096) as buffer:
        strict = Strict(stream)
        if not hashing.set_direct(stream.fileno(), on=True):
            with pytest.raises(OSError, match="alignment"):  # never direct: nothing to fall back to
                list(hashing.fill(strict, buffer))
            return
        read = b"".join(buffer[:count] for count in hashing.fill(strict, buffer))
    assert read == data
