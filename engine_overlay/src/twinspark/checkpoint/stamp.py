"""The stamp: proof that these very files were verified, cheap to check at every engine start.

A stamp holds the manifest's digest and a fingerprint of every file's size and modification time.
It notices a file that was replaced, cut, added or removed. It cannot notice a byte that flipped on
the disk: `verify` reads them all.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinspark.checkpoint.errors import CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, STAMP_NAME, scan
from twinspark.checkpoint.strict import Reader, read_small, write_atomically

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from twinspark.checkpoint.manifest import Manifest

SCHEMA = "twinspark.checkpoint-stamp/1"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What was verified.

    Attributes:
        tree_sha256: The manifest's digest over all files.
        manifest_sha256: SHA-256 of the manifest file itself.
        fingerprint: Digest over path, size and modification time (ns) of every file.
        origin: The manifest's origin: how far its digests can be trusted.
        kind: What the checkpoint was found to be.
        files: How many.
        total: Bytes.
        verified: When, in seconds since the epoch.
    """

    tree_sha256: str
    manifest_sha256: str
    fingerprint: str
    origin: str
    kind: str
    files: int
    total: int
    verified: int

    def as_dict(self) -> dict[str, object]:
        """The file's content, which is `--json`'s too."""
        return {
            "schema": SCHEMA,
            "tree_sha256": self.tree_sha256,
            "manifest_sha256": self.manifest_sha256,
            "fingerprint": self.fingerprint,
            "origin": self.origin,
            "kind": self.kind,
            "files": self.files,
            "bytes": self.total,
            "verified": self.verified,
        }


def fingerprint(files: Mapping[str, os.stat_result]) -> str:
    """Digest over path, size and modification time of every file."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{files[path].st_size} {files[path].st_mtime_ns} {path}\n".encode())
    return digest.hexdigest()


def write(root: Path, manifest: Manifest, files: Mapping[str, os.stat_result]) -> Stamp:
    """Record that `files`, as they lay when the verification began, are those of `manifest`."""
    stamp = Stamp(
        tree_sha256=manifest.tree_sha256,
        manifest_sha256=hashlib.sha256(read_small(root / MANIFEST_NAME)).hexdigest(),
        fingerprint=fingerprint(files),
        origin=manifest.origin,
        kind=manifest.kind,
        files=len(manifest.files),
        total=manifest.total,
        verified=int(time.time()),
    )
    write_atomically(root / STAMP_NAME, json.dumps(stamp.as_dict(), indent=1) + "\n")
    return stamp


def read(root: Path) -> Stamp:
    """Read a checkpoint's stamp.

    Raises:
        CheckpointError: there is none, or it is none.
    """
    path = root / STAMP_NAME
    if not path.is_file():
        raise CheckpointError(
            f"{root} is not verified: run `twinspark checkpoint verify {root}` first"
        )
    reader = Reader(str(path))
    document = reader.load(read_small(path))
    if document.get("schema") != SCHEMA:
        raise reader.fail(f"schema is {document.get('schema')!r}, expected {SCHEMA!r}")
    return Stamp(
        tree_sha256=reader.sha256(document, "tree_sha256"),
        manifest_sha256=reader.sha256(document, "manifest_sha256"),
        fingerprint=reader.sha256(document, "fingerprint"),
        origin=reader.text(document, "origin"),
        kind=reader.text(document, "kind"),
        files=reader.count(document, "files"),
        total=reader.count(document, "bytes"),
        verified=reader.count(document, "verified"),
    )


def check(root: Path, expect: str | None = None) -> Stamp:
    """Check a checkpoint against its stamp, without reading the weights.

    Args:
        root: The checkpoint.
        expect: A tree digest that it must have, or none in particular.

    Raises:
        CannotRunError: the directory cannot be listed.
        CheckpointError: there is no stamp, or the files are no longer those that were verified.
    """
    files = scan(root)
    stamp = read(root)
    again = f"run `twinspark checkpoint verify {root}`"
    if hashlib.sha256(read_small(root / MANIFEST_NAME)).hexdigest() != stamp.manifest_sha256:
        raise CheckpointError(f"{root / MANIFEST_NAME} changed since the verification: {again}")
    if fingerprint(files) != stamp.fingerprint:
        raise CheckpointError(f"{root}: files changed since they were verified: {again}")
    if expect is not None and stamp.tree_sha256 != expect:
        raise CheckpointError(
            f"{root} is another checkpoint: tree digest {stamp.tree_sha256}, expected {expect}"
        )
    return stamp
