"""The two ends of bringing a checkpoint in: look for strays first, write the manifest last."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from twinspark.checkpoint import verify
from twinspark.checkpoint.errors import CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, PARTS_NAME, Manifest, scan
from twinspark.checkpoint.strict import write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def refuse_strays(root: Path, expected: Collection[str]) -> None:
    """Raise when `root` holds files that are not the checkpoint's: nothing of others is removed.

    Raises:
        CheckpointError: it does.
    """
    stray = sorted(set(scan(root)) - set(expected))
    if stray:
        names = ", ".join(stray)[:400]
        raise CheckpointError(f"{root} holds files that do not belong: {names}: remove them")


def put_manifest(root: Path, found: Manifest) -> None:
    """Write a fetched checkpoint's manifest, with its kind, and clear the parts away."""
    shutil.rmtree(root / PARTS_NAME, ignore_errors=True)
    named = verify.name_first_use(root, found)
    origin = named.origin if named.origin == "known" else found.origin
    named = replace(named, origin=origin, source=found.source)
    write_atomically(root / MANIFEST_NAME, named.to_json())


def hub_cache_view(root: Path, cache: Path, repository: str, commit: str) -> Path:
    """Links in the layout of huggingface_hub's cache: the model resolves by name, offline.

    Source: huggingface_hub 2.4.0, file_download.py: `refs/<name>` is read whole and used as a
        folder's name, so a
    newline in it means "not found". Hence 40 bytes.

    Returns:
        The snapshot's folder.
    """
    repo = cache / f"models--{repository.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    shutil.rmtree(snapshot, ignore_errors=True)
    for path in scan(root):
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((root / path).resolve())
    ref = repo / "refs" / "main"
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_bytes(commit.encode("ascii"))
    return snapshot
