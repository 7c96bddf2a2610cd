"""The manifest: each file of a checkpoint with its size and SHA-256, and a digest over all."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.strict import Reader, read_small

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = "twinspark.checkpoint/1"
GENERATOR = "twinspark.checkpoint 0.1.0"
MANIFEST_NAME = "manifest.json"
STAMP_NAME = ".twinspark-verified.json"
STATE_NAME = ".twinspark-verify-state.jsonl"
PARTS_NAME = ".twinspark-parts"
# Where the digests come from. `first-use`: from these very bytes, so that they prove that the bytes
# stay the same, not what they are.
ORIGINS = ("known", "hub", "source", "first-use")


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file: POSIX path below the checkpoint, size in bytes, SHA-256 in lower-case hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a checkpoint, sorted by path.

    Attributes:
        files: The entries.
        origin: One of `ORIGINS`: how far the digests can be trusted.
        kind: What the checkpoint is, as `inspect` names it; "unknown" is a fair answer.
        source: Where the files came from, in words: a repository and revision, or a directory.
    """

    files: tuple[FileEntry, ...]
    origin: str = "first-use"
    kind: str = "unknown"
    source: str = ""

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    @property
    def tree_sha256(self) -> str:
        """One digest over paths, sizes and digests: equal on two nodes when their files are."""
        digest = hashlib.sha256()
        for entry in self.files:
            digest.update(f"{entry.sha256}  {entry.size}  {entry.path}\n".encode())
        return digest.hexdigest()

    def by_path(self) -> dict[str, FileEntry]:
        """The entries by path."""
        return {entry.path: entry for entry in self.files}

    def to_json(self) -> str:
        """The file's text: no date in it, so that equal checkpoints have equal manifests."""
        return (
            json.dumps(
                {
                    "schema": SCHEMA,
                    "generator": GENERATOR,
                    "kind": self.kind,
                    "origin": self.origin,
                    "source": self.source,
                    "tree_sha256": self.tree_sha256,
                    "bytes": self.total,
                    "files": [
                        {"path": e.path, "size": e.size, "sha256": e.sha256} for e in self.files
                    ],
                },
                indent=1,
            )
            + "\n"
        )


def of(
    entries: Iterable[FileEntry], *, origin: str, kind: str = "unknown", source: str = ""
) -> Manifest:
    """A manifest of these entries, sorted."""
    return Manifest(tuple(sorted(entries)), origin, kind, source)


def is_own(name: str) -> bool:
    """Whether a top-level name is ours or huggingface_hub's record: never part of the model."""
    return name.startswith(".twinspark-") or name in {
        MANIFEST_NAME,
        MANIFEST_NAME + ".new",
        ".cache",
    }


def check_path(path: str, where: str) -> str:
    """`path` if it is a plain relative path below the checkpoint and none of our own names.

    Raises:
        CheckpointError: it is absolute, climbs, is empty or holds control characters.
    """
    parts = PurePosixPath(path).parts
    hostile = (
        not parts
        or path.startswith("/")
        or ".." in parts
        or "\\" in path
        or str(PurePosixPath(path)) != path
        or any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in path)
    )
    if hostile or is_own(parts[0]):
        raise CheckpointError(f"{where}: {path[:120]!r} is no path of a checkpoint file")
    return path


def parse(text: str | bytes, where: str) -> Manifest:
    """Decode a manifest.

    Args:
        text: The file's content.
        where: Its name, for messages.

    Raises:
        CheckpointError: anything in it is not as the format says.
    """
    reader = Reader(where)
    document = reader.load(text)
    if document.get("schema") != SCHEMA:
        raise reader.fail(f"schema is {document.get('schema')!r}, expected {SCHEMA!r}")
    rows = document.get("files")
    if not isinstance(rows, list) or not rows:
        raise reader.fail("`files` is missing, empty or not a list")
    entries = []
    for row in rows:
        item = reader.mapping(row, "a file entry")
        path = check_path(reader.text(item, "path"), where)
        entries.append(FileEntry(path, reader.count(item, "size"), reader.sha256(item, "sha256")))
    if len({entry.path for entry in entries}) != len(entries):
        raise reader.fail("lists a file twice")
    origin = reader.text(document, "origin")
    if origin not in ORIGINS:
        raise reader.fail(f"origin is {origin!r}, expected one of {', '.join(ORIGINS)}")
    manifest = of(
        entries,
        origin=origin,
        kind=reader.text(document, "kind"),
        source=reader.text(document, "source"),
    )
    if manifest.tree_sha256 != reader.sha256(document, "tree_sha256"):
        raise reader.fail("tree_sha256 does not fit its own files: the manifest was edited")
    return manifest


def read(path: Path) -> Manifest:
    """Read a manifest file.

    Raises:
        CannotRunError: it cannot be read.
        CheckpointError: it is not a manifest.
    """
    return parse(read_small(path), str(path))


def require_directory(root: Path) -> None:
    """Raise unless `root` is a directory.

    Raises:
        CannotRunError: it is none, or not there.
    """
    if not root.is_dir():
        what = "is not a directory" if root.exists() else "does not exist"
        raise CannotRunError(f"{root} {what}: fetch or copy the checkpoint first")


def scan(root: Path) -> dict[str, os.stat_result]:
    """All files of a checkpoint by POSIX path, without our own; a link to a file counts as one.

    Raises:
        CannotRunError: the directory does not exist or cannot be listed.
        CheckpointError: it holds something that is neither file nor directory.
    """
    require_directory(root)
    return dict(sorted(_walk(root, "")))


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as listing:
            items = list(listing)
        for item in items:
            if not prefix and is_own(item.name):
                continue
            path = prefix + item.name
            if item.is_dir(follow_symlinks=False):
                yield from _walk(Path(item.path), path + "/")
            elif item.is_file():
                yield check_path(path, str(folder)), item.stat()
            else:
                raise CheckpointError(
                    f"{item.path} is neither a file nor a directory, or a dangling link"
                )
    except OSError as error:
        raise CannotRunError(f"{error.filename} cannot be read: {error.strerror}") from error
