"""Node to node by hand: serve here, start `pull` over there by ssh.

Falls back to one rsync over ssh where no stream comes through.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.checkpoint import sender, verify, wire
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, PARTS_NAME, Manifest, require_directory
from twinspark.checkpoint.options import addresses, one_or_more, port, program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NOT_FOUND = 127  # the remote shell's status for a program that is not there
SSH_FAILED = 255


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `copy`."""
    parser.add_argument("directory", type=Path)
    parser.add_argument("target", metavar="[USER@]HOST:DIRECTORY")
    parser.add_argument(
        "--rails", type=addresses, metavar="ADDR,ADDR", help="this node's addresses on the rails"
    )
    parser.add_argument("--port", type=port, metavar="N", default=wire.DEFAULT_PORT)
    parser.add_argument(
        "--streams", type=one_or_more, metavar="N", default=4, help="a rail (default: 4)"
    )
    parser.add_argument(
        "--ssh",
        type=program,
        metavar="COMMAND",
        default="ssh -o BatchMode=yes",
        help="how to reach the other node",
    )
    parser.add_argument(
        "--remote-command",
        type=program,
        metavar="COMMAND",
        default="twinspark checkpoint",
        help="this program over there",
    )
    parser.add_argument("--via", choices=("auto", "streams", "rsync"), default="auto")
    parser.add_argument(
        "--beside-engine", action="store_true", help="go on although an engine is up here"
    )


def run(args: argparse.Namespace) -> int:
    """Copy one checkpoint."""
    require_directory(args.directory)
    verify.refuse_beside_engine(verify.Options(beside_engine=args.beside_engine), "copying")
    manifest = sender.open_checkpoint(args.directory)
    host, _, directory = args.target.partition(":")
    if not host or not directory:
        raise CannotRunError(f"{args.target!r} is not [user@]host:directory")
    if args.via != "rsync":
        status = by_streams(args, manifest, host, directory)
        if status is not None:
            return status
        if args.via == "streams":
            raise CannotRunError(f"no stream reached this node from {host}: is the port open?")
        print(
            "twinspark checkpoint: no stream came through, falling back to rsync", file=sys.stderr
        )
    by_rsync(args, manifest, host, directory)
    print(f"{args.target}: {manifest.total} bytes are there and verified, by rsync")
    return 0


def local_address(host: str) -> str:
    """This machine's address on the way to a host, for when no rails are named."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host.rpartition("@")[2], 9))
        except OSError as error:
            raise CannotRunError(f"{host} has no address: {error}; say --rails") from error
        return str(probe.getsockname()[0])


def by_streams(
    args: argparse.Namespace, manifest: Manifest, host: str, directory: str
) -> int | None:
    """Serve here, pull there.

    Returns:
        The remote exit status, or None if no stream came through.

    Raises:
        CannotRunError: ssh failed, or what ran over there is not this program.
    """
    rails = args.rails or [local_address(host)]
    token = wire.new_token()
    server = sender.Server(args.directory, manifest, rails, args.port, token.encode())
    pull = [
        "pull",
        directory,
        "--from",
        ",".join(rails),
        "--port",
        str(server.port),
        "--streams",
        str(args.streams),
        "--expect-tree",
        manifest.tree_sha256,
        "--patience",
        "15",
        "--token-file",
        "-",
    ]
    try:
        status = _remote(args, host, _tool(args, pull), token + "\n")
    finally:
        server.close()
    if status == SSH_FAILED:
        raise CannotRunError(f"ssh to {host} failed: see what it says above, or name it with --ssh")
    if status == NOT_FOUND:
        raise CannotRunError(
            f"{host} has no `{args.remote_command}`: name it with --remote-command, "
            "or say --via rsync"
        )
    if server.admitted == 0 and status == 0:
        raise CannotRunError(
            f"nothing was copied: what ran on {host} ended well and took nothing from here. "
            "Are --ssh and --remote-command right?"
        )
    return None if server.admitted == 0 else status


def by_rsync(args: argparse.Namespace, manifest: Manifest, host: str, directory: str) -> None:
    """One rsync over ssh, then verification at the far end, by sha256sum if it must be.

    Raises:
        CannotRunError: rsync or ssh failed, or what arrived could not be verified.
        CheckpointError: what arrived is not what was sent.
    """
    names = "".join(f"{entry.path}\n" for entry in manifest.files) + MANIFEST_NAME + "\n"
    command = [
        "rsync",
        "--archive",
        "--no-owner",
        "--no-group",
        f"--partial-dir={PARTS_NAME}",
        "--mkpath",
        "--files-from=-",
        "--rsh",
        args.ssh,
        f"{args.directory}/",
        f"{host}:{directory}/",
    ]
    status = subprocess.run(command, input=names, text=True, check=False).returncode
    if status != 0:
        raise CannotRunError(
            f"rsync to {host} ended with status {status}: see what it says above, "
            "run the copy again to go on"
        )
    status = _remote(args, host, _tool(args, ["verify", directory]))
    if status == NOT_FOUND:
        listing = "".join(f"{entry.sha256}  {entry.path}\n" for entry in manifest.files)
        check = f"cd {shlex.quote(directory)} && sha256sum --check --quiet --strict -"
        status = _remote(args, host, check, listing)
    if status == 1:
        raise CheckpointError(f"{host}:{directory} is not what was sent: see what it says above")
    if status != 0:
        raise CannotRunError(
            f"{host}:{directory} arrived and could not be verified there (status {status}): "
            "see what it says above, run the copy again to go on"
        )


def _tool(args: argparse.Namespace, words: Sequence[str]) -> str:
    """The line that runs one of this program's actions over there, beside an engine if we do."""
    beside = ["--beside-engine"] if args.beside_engine else []
    return shlex.join([*shlex.split(args.remote_command), *words, *beside])


def _remote(args: argparse.Namespace, host: str, line: str, text: str | None = None) -> int:
    return subprocess.run(
        [*shlex.split(args.ssh), host, line],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        text=True,
        check=False,
    ).returncode
