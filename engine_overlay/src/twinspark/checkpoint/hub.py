"""Fetching from the Hub: a pinned commit, resumed within a file, held against its digests.

huggingface_hub lists the files and gives session, proxies, token and addresses. The bytes are not
left to its `snapshot_download`: since 2.x that throws a partial file away when the process ends
(`_download_to_tmp_and_move`, file_download.py:1970-2052@2.4.0), which here is up to 3.7 GB. Xet
stays off unless asked for, for the same reason.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from twinspark.checkpoint import hashing, identity, known, verify
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.fetch import require_commit, source_name
from twinspark.checkpoint.manifest import PARTS_NAME, FileEntry, check_path, of, scan
from twinspark.checkpoint.place import put_manifest, refuse_strays
from twinspark.checkpoint.progress import meter
from twinspark.checkpoint.space import check_space

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from twinspark.checkpoint.progress import Meter

ATTEMPTS = 8  # in a row without a byte of progress
FINAL_STATUSES = frozenset({400, 401, 403, 404, 410, 451})  # asking again does not help


@dataclass(frozen=True, slots=True)
class Remote:
    """A file as the Hub lists it: bytes, and SHA-256 (LFS) or git's blob SHA-1 (small files)."""

    path: str
    size: int
    sha256: str | None
    blob: str

    def accepts(self, path: Path) -> bool:
        """Whether a local file is this one."""
        if path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
        content = path.read_bytes()
        # git's own name for the content; not a defence, only what the Hub offers for small files
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        return blob.hexdigest() == self.blob


def fetch(args: argparse.Namespace, options: verify.Options) -> int:
    """Bring a repository's files at one commit into `args.directory`, and write the manifest.

    Returns:
        Bytes that were downloaded.

    Raises:
        CannotRunError: there is no huggingface_hub, no way to the Hub, or no room.
        CheckpointError: the Hub serves another 0731 than the one that is known, or files do not
            belong.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if not args.xet:
        os.environ["HF_HUB_DISABLE_XET"] = "1"  # read when huggingface_hub is imported
    client = Client(args.repository)
    commit = client.resolve(args.revision)
    files = client.files(commit)
    hold_against_known(args.repository, files)
    target: Path = args.directory
    refuse_strays(target, {remote.path for remote in files})
    there = scan(target)
    workers = options.workers or hashing.default_workers()
    right = hashing.run_all(
        lambda remote: remote.path in there and remote.accepts(target / remote.path), files, workers
    )
    wanted = [remote for remote, fits in zip(files, right, strict=True) if not fits]
    parts = target / PARTS_NAME / "files"
    total = sum(remote.size - part_size(parts / remote.path, remote) for remote in wanted)
    check_space(target, total)
    if wanted:
        verify.forget(target)
    with meter(f"fetch {target.name}", total, quiet=options.quiet) as bar:
        if args.xet:
            client.snapshot(commit, target, args.connections)
        else:
            hashing.run_all(
                lambda remote: client.download(commit, remote, target, bar),
                sorted(wanted, key=lambda remote: -remote.size),
                args.connections,
            )
    _refuse_content(target)
    entries = [FileEntry(r.path, r.size, r.sha256 or _sha256(target / r.path, r)) for r in files]
    put_manifest(target, of(entries, origin="hub", source=source_name(args.repository, commit)))
    return total


def hold_against_known(repository: str, files: list[Remote]) -> None:
    """Before a byte is loaded: there are weights, and 0731's shards have the known digests.

    Raises:
        CheckpointError: there are none, or one has not.
    """
    if not any(remote.path.endswith(".safetensors") for remote in files):
        raise CheckpointError(identity.NO_WEIGHTS.format(repository))
    if repository != known.REPOSITORY:
        return
    listed = {remote.path: remote for remote in files}
    for entry in known.SHARDS:
        remote = listed.get(entry.path)
        if remote is None or (remote.size, remote.sha256) != (entry.size, entry.sha256):
            raise CheckpointError(
                f"{repository} does not hold 0731's {entry.path} at this commit: "
                f"use {' or '.join(commit[:8] for commit in known.REVISIONS)}"
            )


def _refuse_content(target: Path) -> None:
    """What the Hub lists can be no checkpoint all the same: no manifest then, and no stamp."""
    if wrong := verify.content_problems(target, scan(target)):
        verify.forget(target)
        raise CheckpointError("; ".join(wrong))


def part_size(part: Path, remote: Remote) -> int:
    """Bytes of a part that an earlier run has left; 0 if it cannot be a beginning of the file."""
    size = part.stat().st_size if part.is_file() else 0
    return size if size <= remote.size else 0


def _sha256(path: Path, remote: Remote) -> str:
    if not remote.accepts(path):
        raise CheckpointError(f"{path} is not what the Hub lists: fetch it again")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Client:
    """What is needed of huggingface_hub."""

    def __init__(self, repository: str) -> None:
        """Import it.

        Raises:
            CannotRunError: it is not installed.
        """
        try:
            import huggingface_hub  # noqa: PLC0415 - only a fetch from the Hub needs it
            import huggingface_hub.errors  # noqa: PLC0415
        except ImportError as error:
            raise CannotRunError(
                f"{error}: the Hub needs huggingface_hub, which the role checkpoint installs"
            ) from error
        self._hub = huggingface_hub
        self._endpoint = os.environ.get("HF_ENDPOINT")
        self._api = huggingface_hub.HfApi(endpoint=self._endpoint)
        self._repository = repository
        # the HTTP client that huggingface_hub brings has changed its name before
        client = import_module(type(huggingface_hub.get_session()).__module__.partition(".")[0])
        self._errors: tuple[type[Exception], ...] = (OSError, ValueError, client.HTTPError)

    def resolve(self, revision: str) -> str:
        """The 40 digits of a commit that is given by 7 or more of them.

        Raises:
            CannotRunError: it names no commit, as a branch or a tag does, or the Hub cannot be
                asked.
        """
        require_commit(revision)
        if len(revision) == 40:
            return revision
        try:
            commits = [c.commit_id for c in self._api.list_repo_commits(self._repository)]
        except self._errors as error:
            raise _unreachable(error) from error
        fits = [commit for commit in commits if commit.startswith(revision)]
        if len(fits) != 1:
            raise CannotRunError(f"{self._repository} has {len(fits)} commits named {revision}...")
        return fits[0]

    def files(self, commit: str) -> list[Remote]:
        """All files at a commit.

        Raises:
            CannotRunError: the Hub cannot be asked or has no such commit.
            CheckpointError: it answers with another commit or with a hostile path.
        """
        try:
            info = self._api.model_info(self._repository, revision=commit, files_metadata=True)
        except self._errors as error:
            raise _unreachable(error) from error
        if info.sha != commit:
            raise CheckpointError(f"asked for {commit}, the Hub answers with {info.sha}")
        return [
            Remote(
                check_path(item.rfilename, self._repository),
                int(item.size or 0),
                item.lfs.sha256 if item.lfs else None,
                str(item.blob_id),
            )
            for item in info.siblings or ()
        ]

    def snapshot(self, commit: str, target: Path, connections: int) -> None:
        """Leave it all to huggingface_hub, Xet included."""
        try:
            self._hub.snapshot_download(
                self._repository,
                revision=commit,
                local_dir=target,
                max_workers=connections,
                endpoint=self._endpoint,
            )
        except self._errors as error:
            raise _unreachable(error) from error

    def download(self, commit: str, remote: Remote, target: Path, bar: Meter) -> None:
        """Download one file through a part file that the next run goes on with.

        Raises:
            CannotRunError: the Hub or the disk fails for good.
        """
        part = target / PARTS_NAME / "files" / remote.path
        part.parent.mkdir(parents=True, exist_ok=True)
        if part_size(part, remote) == 0:
            part.unlink(missing_ok=True)
        part.touch()
        url = self._hub.hf_hub_url(
            self._repository, remote.path, revision=commit, endpoint=self._endpoint
        )
        failures = 0
        while (have := part.stat().st_size) < remote.size:
            try:
                self._append(url, part, have, remote.size, bar)
            except self._errors as error:
                failures = failures + 1 if part.stat().st_size == have else 0
                status = getattr(getattr(error, "response", None), "status_code", 0)
                if failures >= ATTEMPTS or status in FINAL_STATUSES:
                    raise _unreachable(error) from error
                time.sleep(min(0.25 * 2**failures, 20.0))
        final = target / remote.path
        final.parent.mkdir(parents=True, exist_ok=True)
        part.replace(final)

    def _append(self, url: str, part: Path, have: int, size: int, bar: Meter) -> None:
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # noqa: PLC0415 - re-exported lazily
            build_hf_headers,
            hf_raise_for_status,
        )

        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        session = self._hub.get_session()
        with session.stream("GET", url, headers=headers, follow_redirects=True) as answer:
            hf_raise_for_status(answer)
            resumes = answer.status_code == 206 and answer.headers.get(
                "Content-Range", ""
            ).startswith(f"bytes {have}-")
            with part.open("ab" if resumes else "wb") as stream:
                written = have if resumes else 0
                for piece in answer.iter_raw():
                    written += len(piece)
                    if written > size:
                        raise CheckpointError(
                            f"{url} is longer than the {size} bytes that are listed"
                        )
                    stream.write(piece)
                    bar.add(len(piece))


def _unreachable(error: Exception) -> CannotRunError:
    return CannotRunError(f"the Hub does not serve this: {' '.join(str(error).split())[:300]}")
