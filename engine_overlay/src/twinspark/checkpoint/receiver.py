"""The side that takes the checkpoint: into part files, verified, then in place."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.arguments import seconds
from twinspark.checkpoint import hashing, parts, stamp, verify, wire
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, FileEntry, Manifest, parse, read, scan
from twinspark.checkpoint.options import (
    add_work_options,
    addresses,
    one_or_more,
    options_of,
    port,
    tree_digest,
)
from twinspark.checkpoint.place import refuse_strays
from twinspark.checkpoint.progress import meter
from twinspark.checkpoint.space import check_space
from twinspark.checkpoint.strict import write_atomically
from twinspark.checkpoint.transfer import Peer, Transfer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pull did; bytes and seconds.

    Attributes:
        total: Bytes of the checkpoint.
        kept: Bytes of files that were there and right already.
        resumed: Bytes of part files that an earlier run had received.
        received: Bytes that came over the rails in this run.
        reconnects: Streams that had to be opened anew.
        transfer_s: The transfer alone; `transfer_cpu_s` is this side's processor time for it.
        verify_s: Reading and hashing, before (files that were there) and after.
    """

    total: int
    kept: int
    resumed: int
    received: int
    reconnects: int
    transfer_s: float
    transfer_cpu_s: float
    verify_s: float
    tree_sha256: str


def pull(
    root: Path, peer: Peer, options: verify.Options, expect_tree: str | None = None
) -> Outcome:
    """Make `root` equal to the checkpoint that `peer` serves, and stamp it.

    Raises:
        CannotRunError: nobody serves, an engine is up, the disk is too small, or the rails stay
            down.
        CheckpointError: files are there that do not belong, or what arrived is not what was
            promised.
    """
    # in this order: `copy` answers with rsync to a side that never came through, not to a refusal
    manifest = fetch_manifest(peer)
    verify.refuse_beside_engine(options, "copying")
    if expect_tree not in {None, manifest.tree_sha256}:
        raise CheckpointError(
            f"the other side serves {manifest.tree_sha256}, expected {expect_tree}"
        )
    root.mkdir(parents=True, exist_ok=True)
    refuse_strays(root, manifest.by_path())
    begun = time.monotonic()
    kept = right_already(root, scan(root), manifest, options)
    compared_s = time.monotonic() - begun
    wanted = [entry for entry in manifest.files if entry.path not in kept]
    moved = bring(root, peer, wanted, options) if wanted else Moved()
    _finish(root, manifest, peer)
    return Outcome(
        total=manifest.total,
        kept=manifest.total - sum(entry.size for entry in wanted),
        resumed=moved.resumed,
        received=moved.received,
        reconnects=moved.reconnects,
        transfer_s=moved.transfer_s,
        transfer_cpu_s=moved.transfer_cpu_s,
        verify_s=compared_s + moved.settle_s,
        tree_sha256=manifest.tree_sha256,
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """What `bring` did, as in `Outcome`; `settle_s`: verifying and moving into place."""

    resumed: int = 0
    received: int = 0
    reconnects: int = 0
    transfer_s: float = 0.0
    transfer_cpu_s: float = 0.0
    settle_s: float = 0.0


def bring(root: Path, peer: Peer, wanted: Sequence[FileEntry], options: verify.Options) -> Moved:
    """Receive these files into parts, verify them and move them into place.

    Raises:
        CannotRunError: no room, or the rails stay down.
        CheckpointError: a file arrived corrupt.
    """
    verify.forget(root)
    store = parts.Store(root, wanted)
    resumed = store.resumed()
    coming = sum(entry.size for entry in wanted) - resumed
    try:
        check_space(root, coming)
        begun, used = time.monotonic(), time.process_time()
        with meter(f"copy {root.name}", coming, quiet=options.quiet) as bar:
            transfer = Transfer(peer, store, wanted, bar)
            transfer.run()
    finally:
        store.close()
    transfer_s, cpu_s = time.monotonic() - begun, time.process_time() - used
    begun = time.monotonic()
    settle(root, store, wanted, options)
    return Moved(
        resumed=resumed,
        received=transfer.received,
        reconnects=transfer.broken,
        transfer_s=transfer_s,
        transfer_cpu_s=cpu_s,
        settle_s=time.monotonic() - begun,
    )


def fetch_manifest(peer: Peer) -> Manifest:
    """Ask for the manifest; waits up to `patience` for the other side to come up.

    Raises:
        CannotRunError: nobody serves.
        CheckpointError: what comes is no manifest.
    """
    deadline = time.monotonic() + peer.patience
    while True:
        for address in peer.addresses:
            try:
                with wire.connect(address, peer.port, peer.token, peer.stall) as connection:
                    size = wire.ask(connection, {"op": "manifest"})
                    return parse(
                        wire.receive(connection, min(size, 2**24)), f"manifest from {address}"
                    )
            except wire.PeerError as error:
                complaint = str(error)
        if time.monotonic() > deadline:
            raise CannotRunError(f"nobody serves the checkpoint: {complaint}")
        time.sleep(0.3)


def right_already(
    root: Path, files: Mapping[str, os.stat_result], manifest: Manifest, options: verify.Options
) -> set[str]:
    """Paths that are in place and right: by a valid stamp if there is one, else by digest."""
    wanted = manifest.by_path()
    try:
        stamp.check(root)
        have = read(root / MANIFEST_NAME).by_path()
        return {path for path in files if have.get(path) == wanted[path]}
    except CheckpointError:
        pass
    candidates = {path: stat for path, stat in files.items() if stat.st_size == wanted[path].size}
    digests, _ = verify.hash_tree(root, candidates, options)
    return {path for path, digest in digests.items() if digest == wanted[path].sha256}


def settle(
    root: Path, store: parts.Store, wanted: Sequence[FileEntry], options: verify.Options
) -> None:
    """Verify what arrived and move it into place; a wrong part is thrown away.

    Raises:
        CheckpointError: some file is not what the manifest says.
    """
    grown = {entry.path: store.part(entry.path).stat() for entry in wanted}
    state = hashing.state_of(root)
    finished = False
    try:
        with meter(f"verify {root.name}", sum(e.size for e in wanted), quiet=options.quiet) as bar:
            digests = hashing.sha256_all(
                store.part(""),
                grown,
                meter=bar,
                workers=options.workers or hashing.default_workers(),
                state=state,
            )
        finished = True
    finally:
        state.close(finished=finished)
    wrong = [entry.path for entry in wanted if digests[entry.path] != entry.sha256]
    for entry in wanted:
        if entry.path in wrong:
            store.drop(entry.path)
            continue
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        store.part(entry.path).replace(target)
    if wrong:
        raise CheckpointError(
            f"arrived corrupt and thrown away: {', '.join(wrong)}: run the copy again"
        )
    store.remove()


def _finish(root: Path, manifest: Manifest, peer: Peer) -> None:
    """Write manifest and stamp, and tell the other side that it may end."""
    write_atomically(root / MANIFEST_NAME, manifest.to_json())
    stamp.write(root, manifest, scan(root))
    for address in peer.addresses:
        try:
            with wire.connect(address, peer.port, peer.token, peer.stall) as connection:
                wire.ask(connection, {"op": "done"})
                return
        except wire.PeerError as error:
            complaint = str(error)
    print(
        f"twinspark checkpoint: could not tell the other side to end: {complaint}", file=sys.stderr
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `pull`."""
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--from",
        dest="addresses",
        type=addresses,
        required=True,
        metavar="ADDR,ADDR",
        help="one address a rail",
    )
    parser.add_argument("--port", type=port, metavar="N", default=wire.DEFAULT_PORT)
    parser.add_argument(
        "--token-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="read and removed; - is standard input",
    )
    parser.add_argument(
        "--streams", type=one_or_more, metavar="N", default=4, help="a rail (default: 4)"
    )
    parser.add_argument(
        "--stall", type=seconds, default=10.0, metavar="S", help="silence that breaks a stream"
    )
    parser.add_argument(
        "--patience", type=seconds, default=60.0, metavar="S", help="try to reconnect so long"
    )
    parser.add_argument(
        "--expect-tree",
        type=tree_digest,
        metavar="SHA256",
        help="the tree digest that it must have",
    )
    add_work_options(parser)


def run(args: argparse.Namespace) -> int:
    """Pull one checkpoint."""
    os.umask(0o022)
    peer = Peer(
        tuple(args.addresses),
        args.port,
        wire.read_token(args.token_file),
        args.streams,
        args.stall,
        args.patience,
    )
    done = pull(args.directory, peer, options_of(args), args.expect_tree)
    if args.json:
        print(json.dumps({"schema": "twinspark.checkpoint-copy/1"} | asdict(done)))
    else:
        print(_words(args.directory, done))
    return 0


def _words(root: Path, done: Outcome) -> str:
    rate = done.received / done.transfer_s / 1e9 if done.transfer_s else 0.0
    return (
        f"{root}: {done.total} bytes are here and verified in {done.verify_s:.1f} s. "
        f"{done.received} came over the rails in {done.transfer_s:.1f} s ({rate:.2f} GB/s), "
        f"{done.kept} were here, {done.resumed} had arrived before; "
        f"streams opened anew: {done.reconnects}\n  tree {done.tree_sha256}"
    )
