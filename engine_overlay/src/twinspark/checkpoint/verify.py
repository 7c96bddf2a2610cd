"""Verification: every file is there, nothing else is, and every byte is what the manifest says."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinspark.checkpoint import hashing, identity, known, live, stamp
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.headers import read_header
from twinspark.checkpoint.manifest import (
    MANIFEST_NAME,
    STAMP_NAME,
    FileEntry,
    Manifest,
    of,
    read,
    require_directory,
    scan,
)
from twinspark.checkpoint.progress import meter
from twinspark.checkpoint.strict import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """How to go about it.

    Attributes:
        workers: Threads; 0 means `hashing.default_workers`.
        quiet: No progress.
        beside_engine: Go on although an engine is up.
        stamp: Write the stamp, and the manifest if there is none.
        anew: Take it for a first use although there is a manifest, which a right outcome replaces.
    """

    workers: int = 0
    quiet: bool = False
    beside_engine: bool = False
    stamp: bool = True
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a verification; `problems` is empty when all is well.

    Attributes:
        manifest: What was verified against; None when a problem came before any hashing.
        first_use: There was no manifest: it was made from these files.
        hashed: Bytes that were read, without those an interrupted run had done.
        seconds: Time that reading and hashing took.
    """

    root: Path
    manifest: Manifest | None
    problems: tuple[str, ...]
    first_use: bool
    hashed: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "schema": "twinspark.checkpoint-report/1",
            "directory": str(self.root),
            "ok": not self.problems,
            "problems": list(self.problems),
            "tree_sha256": self.manifest.tree_sha256 if self.manifest else None,
            "origin": self.manifest.origin if self.manifest else None,
            "kind": self.manifest.kind if self.manifest else None,
            "first_use": self.first_use,
            "hashed_bytes": self.hashed,
            "seconds": round(self.seconds, 3),
        }


def refuse_beside_engine(options: Options, action: str) -> None:
    """Raise unless the machine has no engine up or the caller insists.

    Raises:
        CannotRunError: an engine is up.
    """
    if options.beside_engine:
        return
    running = live.engine()
    if running is not None:
        raise CannotRunError(
            f"an engine is up here ({running}): {action} would take its memory bandwidth. "
            "Stop the unit first, or say --beside-engine"
        )


def compare_sizes(
    root: Path, files: Mapping[str, os.stat_result], manifest: Manifest
) -> tuple[str, ...]:
    """Files that are missing, unexpected, or of the wrong length, one line each."""
    expected = manifest.by_path()
    problems = [f"{root / path} is missing" for path in expected if path not in files]
    problems += [f"{root / path} is unexpected" for path in files if path not in expected]
    for path, entry in expected.items():
        if path not in files or files[path].st_size == entry.size:
            continue
        short = entry.size - files[path].st_size
        what = f"truncated by {short} bytes" if short > 0 else f"{-short} bytes too long"
        problems.append(f"{root / path} is {what}")
    return tuple(problems)


def header_problems(root: Path, files: Mapping[str, os.stat_result]) -> tuple[str, ...]:
    """What is wrong with the shards' headers."""
    problems = []
    for path in files:
        if path.endswith(".safetensors"):
            try:
                read_header(root / path)
            except CheckpointError as error:
                problems.append(str(error))
    return tuple(problems)


def content_problems(root: Path, files: Mapping[str, os.stat_result]) -> tuple[str, ...]:
    """What shows without reading weights: in the shards' headers, and in the index about them."""
    return (*header_problems(root, files), *identity.weight_problems(root, files))


def verify(root: Path, options: Options, expected: Manifest | None = None) -> Report:
    """Verify a checkpoint and leave the stamp that lets the engine start, or take it away.

    Args:
        root: The checkpoint.
        options: How.
        expected: The manifest to hold it against; its own `manifest.json` if None; made at first
            use if there is none.

    Raises:
        CannotRunError: an engine is up, or a file cannot be read.
        CheckpointError: its own manifest is none.
    """
    require_directory(root)
    refuse_beside_engine(options, "verifying")
    files = scan(root)
    if not files:
        raise CannotRunError(f"{root} is empty: fetch or copy the checkpoint first")
    if expected is None and not options.anew and (root / MANIFEST_NAME).is_file():
        expected = read(root / MANIFEST_NAME)
    quick = compare_sizes(root, files, expected) if expected else ()
    quick = quick or content_problems(root, files)
    if quick:
        forget(root)
        return Report(root, expected, quick, expected is None, 0, 0.0)
    begun = time.monotonic()
    digests, hashed = hash_tree(root, files, options)
    seconds = time.monotonic() - begun
    found = of(
        (FileEntry(path, files[path].st_size, digests[path]) for path in files), origin="first-use"
    )
    problems = _differences(root, found, expected)
    if problems:
        forget(root)
        return Report(root, expected, problems, expected is None, hashed, seconds)
    manifest = expected or name_first_use(root, found)
    if options.stamp:
        record(root, manifest, files)
    return Report(root, manifest, (), expected is None, hashed, seconds)


def hash_tree(
    root: Path, files: Mapping[str, os.stat_result], options: Options
) -> tuple[dict[str, str], int]:
    """Digests of all files, and how many bytes had to be read for them."""
    state = hashing.state_of(root)
    remembered = sum(
        stat.st_size for path, stat in files.items() if state.recall(path, stat) is not None
    )
    total = sum(stat.st_size for stat in files.values())
    finished = False
    try:
        with meter(f"verify {root.name}", total, quiet=options.quiet) as progress:
            digests = hashing.sha256_all(
                root,
                files,
                meter=progress,
                workers=options.workers or hashing.default_workers(),
                state=state,
            )
        finished = True
    finally:
        state.close(finished=finished)
    return digests, total - remembered


def _differences(root: Path, found: Manifest, expected: Manifest | None) -> tuple[str, ...]:
    if expected is None:
        evidence = identity.judge_digests(found)
        if evidence.kind != identity.KIND_LOOKALIKE:
            return ()
        what = (
            "the others are corrupt: fetch them again"
            if identity.equal_shards(found)
            else "a lookalike such as the -DSpark repository: fetch 0731"
        )
        return (f"{root}: {evidence.text}: {what}",)
    wanted = expected.by_path()
    return tuple(
        f"{root / entry.path} is corrupt: SHA-256 is {entry.sha256}, "
        f"expected {wanted[entry.path].sha256}: fetch or copy it again"
        for entry in found.files
        if entry.sha256 != wanted[entry.path].sha256
    )


def name_first_use(root: Path, found: Manifest) -> Manifest:
    """The manifest of a checkpoint that had none, by what its digests are known to match."""
    if identity.judge_digests(found).kind == identity.KIND_0731:
        return replace(found, origin="known", kind=identity.KIND_0731, source=known.REPOSITORY)
    return replace(found, kind=identity.inspect(root).kind)


def record(root: Path, manifest: Manifest, files: Mapping[str, os.stat_result]) -> None:
    """Write manifest (if it is new) and stamp.

    Raises:
        CannotRunError: the directory is read-only.
    """
    if not os.access(root, os.W_OK):
        raise CannotRunError(f"{root} is read-only: say --no-stamp, or verify where it is writable")
    path, text = root / MANIFEST_NAME, manifest.to_json()
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)
    stamp.write(root, manifest, files)


def forget(root: Path) -> None:
    """Take the stamp away, so that the engine does not start on what just failed."""
    if os.access(root, os.W_OK):
        (root / STAMP_NAME).unlink(missing_ok=True)
