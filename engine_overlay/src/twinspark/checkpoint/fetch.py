"""Bringing the checkpoint onto one node: from the Hub, or from a directory such as NFS."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.checkpoint import hashing, known, stamp, verify
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import (
    MANIFEST_NAME,
    PARTS_NAME,
    FileEntry,
    Manifest,
    of,
    read,
    require_directory,
    scan,
)
from twinspark.checkpoint.options import add_work_options, one_or_more, options_of
from twinspark.checkpoint.place import hub_cache_view, put_manifest, refuse_strays
from twinspark.checkpoint.progress import meter
from twinspark.checkpoint.space import check_space
from twinspark.checkpoint.strict import write_atomically

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from twinspark.checkpoint.progress import Meter

BUFFER = 2**20
_COMMIT = re.compile(r"[0-9a-f]{7,40}\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `fetch`."""
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--from-directory", type=Path, metavar="DIR", help="a disk or mount that holds it"
    )
    parser.add_argument("--repository", default=known.REPOSITORY, metavar="OWNER/NAME")
    parser.add_argument(
        "--revision",
        default=known.DEFAULT_REVISION,
        help="commit; a branch is refused (default: %(default)s)",
    )
    parser.add_argument(
        "--hub-cache", type=Path, metavar="DIR", help="also make it resolve by name, offline"
    )
    parser.add_argument(
        "--connections", type=one_or_more, metavar="N", default=8, help="files at once from the Hub"
    )
    parser.add_argument(
        "--xet",
        action="store_true",
        help="let huggingface_hub use Xet; partial files do not resume",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fetch nothing: exit 1 unless all is there and verified",
    )
    add_work_options(parser)


def run(args: argparse.Namespace) -> int:
    """Fetch one checkpoint and verify it."""
    if args.check:
        return _answer(args)
    os.umask(0o022)
    options = options_of(args)
    if args.from_directory is not None:
        refuse_places(args.from_directory, args.directory)
    verify.refuse_beside_engine(options, "fetching")
    args.directory.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    if args.from_directory is not None:
        moved = from_directory(args.from_directory, args.directory, options)
    else:
        from twinspark.checkpoint import hub  # noqa: PLC0415 - needs huggingface_hub

        moved = hub.fetch(args, options)
    seconds = time.monotonic() - begun
    report = verify.verify(args.directory, options)
    if report.problems or report.manifest is None:
        raise CheckpointError("; ".join(report.problems))
    if args.hub_cache is not None:
        commit = report.manifest.source.rpartition("@")[2]
        hub_cache_view(
            args.directory,
            args.hub_cache,
            args.repository,
            commit if len(commit) == 40 else args.revision,
        )
    if args.json:
        print(
            json.dumps(
                {**report.as_dict(), "fetched_bytes": moved, "fetch_seconds": round(seconds, 3)},
                indent=1,
            )
        )
    else:
        print(f"{args.directory}: {moved} bytes fetched in {seconds:.1f} s")
        print(f"  tree {report.manifest.tree_sha256}")
    return 0


def refuse_places(source: Path, target: Path) -> None:
    """Raise unless there is a source, and no copy that would become part of its own source.

    Raises:
        CannotRunError: the source is no directory, or one of the two lies within the other.
    """
    require_directory(source)
    one, other = source.resolve(), target.resolve()
    if one in other.parents or other in one.parents:
        raise CannotRunError(f"{source} and {target}: one lies within the other, take another one")


def _answer(args: argparse.Namespace) -> int:
    """Print what `check` finds; returns the exit status."""
    problems: list[str] = []
    try:
        check(args)
    except CheckpointError as error:
        if not args.json:
            raise
        problems.append(str(error))
    if args.json:
        answer = {"directory": str(args.directory), "ok": not problems, "problems": problems}
        print(json.dumps({"schema": "twinspark.checkpoint-check/1"} | answer, indent=1))
    return int(bool(problems))


def check(args: argparse.Namespace) -> None:
    """Tell, without reading the weights, whether a fetch would have nothing to do.

    Raises:
        CannotRunError: the revision is no commit, or a directory cannot be listed.
        CheckpointError: it would have.
    """
    if args.from_directory is None:
        require_commit(args.revision)
    if not args.directory.is_dir():
        raise CheckpointError(f"{args.directory} is not there yet")
    stamp.check(args.directory)
    here = read(args.directory / MANIFEST_NAME)
    if args.from_directory is None:
        if not holds(here, args.repository, args.revision):
            wanted = source_name(args.repository, args.revision)
            raise CheckpointError(f"{args.directory} is from {here.source!r}, not {wanted!r}")
        return
    source = scan(args.from_directory)
    if (args.from_directory / MANIFEST_NAME).is_file():
        same = read(args.from_directory / MANIFEST_NAME).tree_sha256 == here.tree_sha256
    else:
        same = stamp.fingerprint(source) == stamp.fingerprint(scan(args.directory))
    if not same:
        raise CheckpointError(f"{args.from_directory} holds something else than {args.directory}")


def source_name(repository: str, revision: str) -> str:
    """What the manifest of a fetch from the Hub says about its source."""
    return f"{repository}@{revision}"


def holds(here: Manifest, repository: str, revision: str) -> bool:
    """Whether a manifest is a repository's at a commit; wherever 0731 came from, it is 0731."""
    if here.source.startswith(source_name(repository, revision)):
        return True
    is_0731 = any(commit.startswith(revision) for commit in known.REVISIONS)
    return here.origin == "known" and repository == known.REPOSITORY and is_0731


def require_commit(revision: str) -> None:
    """Raise unless a revision is a commit, by 7 to 40 of its digits.

    Raises:
        CannotRunError: it is a branch, a tag or no name at all.
    """
    if not _COMMIT.match(revision):
        raise CannotRunError(
            f"{revision!r} is no commit: a branch moves, so only commits are taken"
        )


def from_directory(source: Path, target: Path, options: verify.Options) -> int:
    """Copy a checkpoint from a directory, hashing it; what is there and right stays.

    Returns:
        Bytes that were copied.

    Raises:
        CannotRunError: a directory cannot be read or written, or the disk is too small.
        CheckpointError: the source is not what its own manifest says, or the target holds other
            files.
    """
    files = scan(source)
    if not files:
        raise CannotRunError(f"{source} is empty: is it mounted?")
    if source.resolve() == target.resolve():
        return 0
    promised = read(source / MANIFEST_NAME) if (source / MANIFEST_NAME).is_file() else None
    if promised is not None and (wrong := verify.compare_sizes(source, files, promised)):
        raise CheckpointError("; ".join(wrong))
    if wrong := verify.content_problems(source, files):
        raise CheckpointError("; ".join(wrong))
    refuse_strays(target, files)
    there = scan(target)
    digests = _right_already(target, there, files, promised, options)
    wanted = {path: stat for path, stat in files.items() if path not in digests}
    if wanted:
        verify.forget(target)
    total = sum(stat.st_size for stat in wanted.values())
    check_space(target, total)
    with meter(f"fetch {target.name}", total, quiet=options.quiet) as bar:

        def one(path: str) -> tuple[str, str]:
            return path, copy_file(source / path, target, path, bar)

        digests |= hashing.run_all(
            one, wanted, min(4, options.workers or hashing.default_workers())
        )
    found = of(
        (FileEntry(path, files[path].st_size, digests[path]) for path in files), origin="source"
    )
    write_manifest(target, found, promised, str(source))
    return total


def _right_already(
    target: Path,
    there: Mapping[str, os.stat_result],
    files: Mapping[str, os.stat_result],
    promised: Manifest | None,
    options: verify.Options,
) -> dict[str, str]:
    """Digests of files that need not be copied: without a promise, size and time must fit."""
    if promised is None:
        candidates = {
            path: stat
            for path, stat in there.items()
            if (stat.st_size, stat.st_mtime_ns) == (files[path].st_size, files[path].st_mtime_ns)
        }
    else:
        candidates = {
            path: stat for path, stat in there.items() if stat.st_size == files[path].st_size
        }
    digests, _ = verify.hash_tree(target, candidates, options)
    if promised is None:
        return digests
    wanted = promised.by_path()
    return {path: digest for path, digest in digests.items() if digest == wanted[path].sha256}


def copy_file(source: Path, target: Path, path: str, bar: Meter) -> str:
    """Copy one file through a part file, with its time; returns the SHA-256 of what was read."""
    part = target / PARTS_NAME / "files" / path
    final = target / path
    part.parent.mkdir(parents=True, exist_ok=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    view = memoryview(bytearray(BUFFER))
    try:
        with source.open("rb", buffering=0) as reader, part.open("wb", buffering=0) as writer:
            while count := reader.readinto(view):
                digest.update(view[:count])
                writer.write(view[:count])
                bar.add(count)
            stat = os.fstat(reader.fileno())
    except OSError as error:
        raise CannotRunError(f"{source} cannot be copied to {final}: {error.strerror}") from error
    os.utime(part, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    part.replace(final)
    return digest.hexdigest()


def write_manifest(root: Path, found: Manifest, promised: Manifest | None, source: str) -> None:
    """Write the manifest of what was copied; the source's own one stays as it is, and must fit.

    Raises:
        CheckpointError: the source does not hold what its manifest promises.
    """
    if promised is None:
        put_manifest(root, replace(found, source=source))
        return
    shutil.rmtree(root / PARTS_NAME, ignore_errors=True)
    if promised.tree_sha256 != found.tree_sha256:
        wanted = promised.by_path()
        wrong = [entry.path for entry in found.files if entry != wanted.get(entry.path)]
        raise CheckpointError(f"{source} is not what its manifest says: {', '.join(wrong)}")
    write_atomically(root / MANIFEST_NAME, promised.to_json())
