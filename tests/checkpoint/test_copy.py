"""Node to node: authenticated, parallel, resumed, verified."""

from __future__ import annotations

import json
import os
import socket
import stat as mode
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from checkpoint.builders import checkpoint, flip
from twinspark.checkpoint import live, parts, receiver, sender, transfer, verify, wire
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import MANIFEST_NAME, PARTS_NAME, STAMP_NAME, FileEntry, read
from twinspark.checkpoint.transfer import Peer

if TYPE_CHECKING:
    from pathlib import Path

QUIET = verify.Options(quiet=True)
TOKEN = b"t" * 40
RAILS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "CHUNK", 10_000)


@pytest.fixture
def server(verified: Path):
    served = sender.Server(verified, sender.open_checkpoint(verified), RAILS, 0, TOKEN)
    yield served
    served.close()


def peer(port: int, **changes: object) -> Peer:
    settings = {"streams": 2, "stall": 2.0, "patience": 1.0} | changes
    return Peer(RAILS, port, TOKEN, **settings)  # type: ignore[arg-type]


def same(one: Path, two: Path) -> bool:
    names = [entry.path for entry in read(one / MANIFEST_NAME).files] + [MANIFEST_NAME]
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_pull__makes_the_other_side_equal_and_stamps_it(
    server: sender.Server, verified: Path, tmp_path: Path
) -> None:
    done = receiver.pull(tmp_path / "far", peer(server.port), QUIET)
    assert same(verified, tmp_path / "far")
    assert (done.received, done.kept, done.resumed, done.reconnects) == (done.total, 0, 0, 0)
    assert (tmp_path / "far" / STAMP_NAME).exists()
    assert not (tmp_path / "far" / PARTS_NAME).exists()
    assert server.wait(5.0)
    assert server.sent == done.total


def test_pull__sends_nothing_that_is_there_and_right(
    server: sender.Server, verified: Path, tmp_path: Path
) -> None:
    far = checkpoint(tmp_path / "far")  # the same bytes, never verified there
    flip(far / "model-00001-of-00003.safetensors")
    done = receiver.pull(far, peer(server.port), QUIET)
    assert done.received == (far / "model-00001-of-00003.safetensors").stat().st_size
    assert same(verified, far)
    again = sender.Server(verified, sender.open_checkpoint(verified), RAILS, 0, TOKEN)
    second = receiver.pull(far, peer(again.port), QUIET)
    again.close()
    assert (second.received, second.kept) == (0, second.total)


def test_pull__refuses_to_mix_with_other_files(server: sender.Server, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "other.bin").write_text("x")
    with pytest.raises(CheckpointError, match=r"do not belong: other\.bin"):
        receiver.pull(tmp_path / "far", peer(server.port), QUIET)


def test_pull__beside_a_live_engine_is_refused_after_it_came_through(
    server: sender.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "engine", lambda: "unit x")
    with pytest.raises(CannotRunError, match="an engine is up here"):
        receiver.pull(tmp_path / "far", peer(server.port), QUIET)
    assert (server.admitted, (tmp_path / "far").exists()) == (1, False)


def test_pull__expects_a_tree(server: sender.Server, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected 000"):
        receiver.pull(tmp_path / "far", peer(server.port), QUIET, "0" * 64)


def test_pull__looks_for_room_first(
    server: sender.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(CannotRunError, match="10 are free"):
        receiver.pull(tmp_path / "far", peer(server.port), QUIET)
    assert server.sent == 0


def test_stranger__gets_nothing(server: sender.Server, tmp_path: Path) -> None:
    wrong = Peer(RAILS, server.port, b"x" * 40, patience=0.3, stall=1.0)
    with pytest.raises(CannotRunError, match="nobody serves"):
        receiver.pull(tmp_path / "far", wrong, QUIET)
    assert (server.admitted, server.sent) == (0, 0)


def test_pull__does_not_believe_a_server_without_the_token() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def impostor() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(bytes(32))
            wire.receive(connection, 64)
            connection.sendall(bytes(32))

    thread = threading.Thread(target=impostor, daemon=True)
    thread.start()
    with pytest.raises(wire.PeerError, match="does not hold the token"):
        wire.connect("127.0.0.1", listener.getsockname()[1], TOKEN, 2.0)
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "read", "path": "../../etc/passwd", "offset": 0, "length": 1},
        {"op": "read", "path": "config.json", "offset": 0, "length": 10**9},
        {"op": "read", "path": "config.json", "offset": -1, "length": 1},
        {"op": "list"},
    ],
)
def test_server__serves_ranges_of_its_manifest_only(
    server: sender.Server, request_: dict[str, object]
) -> None:
    with (
        wire.connect("127.0.0.1", server.port, TOKEN, 2.0) as stream,
        pytest.raises(wire.PeerError),
    ):
        wire.ask(stream, request_)
    assert server.sent == 0


def test_server__does_not_serve_what_is_unverified(model: Path) -> None:
    with pytest.raises(CheckpointError, match="is not verified"):
        sender.open_checkpoint(model)


def test_server__ends_when_nobody_comes(server: sender.Server) -> None:
    assert server.wait(0.1) is False


class Breaks:
    """Lets so many bytes through, then breaks every stream, once or for good."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, allowance: int, *, for_good: bool = False
    ) -> None:
        self.left, self.for_good, self.broken = allowance, for_good, 0
        self._real = transfer.Transfer._drain
        monkeypatch.setattr(transfer.Transfer, "_drain", self.drain(self))

    @staticmethod
    def drain(breaks: Breaks):
        def drain(self, connection, target, piece, buffer):
            breaks.left -= piece.length
            if breaks.left > 0 or (breaks.broken and not breaks.for_good):
                return breaks._real(self, connection, target, piece, buffer)
            breaks.broken += 1
            half = parts.Range(piece.path, piece.offset, piece.length // 2)
            got = breaks._real(self, connection, target, half, buffer)
            connection.close()
            return got

        return drain


def test_broken_stream__goes_on_within_the_range_it_broke_in(
    server: sender.Server, verified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = Breaks(monkeypatch, 100_000)
    done = receiver.pull(tmp_path / "far", peer(server.port), QUIET)
    assert same(verified, tmp_path / "far")
    assert (breaks.broken, done.reconnects) == (1, 1)
    assert done.received == done.total  # nothing twice


def test_dead_rails__end_the_run_and_the_next_one_sends_only_the_rest(
    server: sender.Server, verified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    with monkeypatch.context() as patch:
        Breaks(patch, 200_000, for_good=True)
        patch.setattr(wire, "connect", dying(wire.connect, 5))
        with pytest.raises(CannotRunError, match=r"broke off: \w.*Run it again"):
            receiver.pull(far, peer(server.port, patience=0.5), QUIET)
    assert not (far / STAMP_NAME).exists()
    done = receiver.pull(far, peer(server.port), QUIET)
    assert same(verified, far)
    assert done.resumed > 100_000
    assert done.received == done.total - done.resumed


def dying(real, lives: int):
    """`connect` that works so many times (the manifest is one) and then finds nobody."""
    left = [lives]

    def connect(address, port, token, stall):
        left[0] -= 1
        if left[0] < 0:
            raise wire.PeerError(f"{address}: no route")
        return real(address, port, token, stall)

    return connect


def test_dead_rail__leaves_the_work_to_the_other(
    server: sender.Server, verified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = wire.connect

    def connect(address, port, token, stall):
        if address == RAILS[1]:
            raise wire.PeerError("no route")
        return real(address, port, token, stall)

    monkeypatch.setattr(wire, "connect", connect)
    receiver.pull(tmp_path / "far", peer(server.port), QUIET)
    assert same(verified, tmp_path / "far")


def test_corrupt_arrival__is_thrown_away_and_only_that_comes_again(
    server: sender.Server, verified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, name = tmp_path / "far", "model-00003-of-00003.safetensors"
    real = receiver.settle

    def corrupts(root, store, wanted, options):
        flip(store.part(name))
        real(root, store, wanted, options)

    with monkeypatch.context() as patch:
        patch.setattr(receiver, "settle", corrupts)
        with pytest.raises(CheckpointError, match=f"arrived corrupt and thrown away: {name}"):
            receiver.pull(far, peer(server.port), QUIET)
    assert not (far / STAMP_NAME).exists()
    assert not (far / name).exists()
    done = receiver.pull(far, peer(server.port), QUIET)
    assert done.received == (far / name).stat().st_size
    assert same(verified, far)


def test_journal__of_another_digest_does_not_count(tmp_path: Path) -> None:
    old, new = (FileEntry("f", 10, letter * 64) for letter in "ab")
    store = parts.Store(tmp_path, [old])
    store.open("f").close()
    store.record(parts.Range("f", 0, 4))
    store.close()
    assert parts.Store(tmp_path, [old]).resumed() == 4
    assert parts.Store(tmp_path, [new]).resumed() == 0


@pytest.mark.parametrize(
    "line", ['["f", "DIGEST", "b", 4]', '["f", "DIGEST", 0, 1e999]', '[[], "a", 0, 4]', '"abcd"']
)
def test_journal__of_something_else_does_not_count(tmp_path: Path, line: str) -> None:
    entry = FileEntry("f", 10, "a" * 64)
    store = parts.Store(tmp_path, [entry])
    store.open("f").close()
    store.close()
    (tmp_path / PARTS_NAME / parts.JOURNAL_NAME).write_text(line.replace("DIGEST", entry.sha256))
    assert parts.Store(tmp_path, [entry]).resumed() == 0


def test_missing_ranges__are_what_the_journal_lacks(tmp_path: Path) -> None:
    entry = FileEntry("f", 25, "a" * 64)
    store = parts.Store(tmp_path, [entry])
    store.open("f").close()
    for offset, length in [(3, 4), (5, 4), (20, 5)]:
        store.record(parts.Range("f", offset, length))
    store.close()
    again = parts.Store(tmp_path, [entry])
    missing = [(piece.offset, piece.length) for piece in again.missing([entry], 8)]
    assert missing == [(0, 3), (9, 8), (17, 3)]
    assert again.resumed() == 11


def test_token_file__is_private_and_read_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    with pytest.raises(CannotRunError, match="can be read by others"):
        wire.read_token(path)
    path.chmod(0o600)
    assert wire.read_token(path) == b"x" * 40
    assert not path.exists()
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(CannotRunError, match=f"{path}: the token has fewer than 32"):
        wire.read_token(path)
    assert path.exists()


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def program(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | mode.S_IXUSR)
    return path


def copy(verified: Path, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinspark.checkpoint", "copy", str(verified), target]
    return subprocess.run(
        [*command, "--beside-engine", "--port", free_port(), "--rails", ",".join(RAILS), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """An ssh that stays at home: drops the host and runs the line."""
    return str(program(tmp_path, "ssh", '#!/bin/sh\nshift\nexec sh -c "$*"\n'))


def test_copy__starts_the_far_side_and_is_content(verified: Path, tmp_path: Path, ssh: str) -> None:
    far = tmp_path / "far away"
    remote = f"{sys.executable} -m twinspark.checkpoint"
    done = copy(verified, f"host:{far}", "--ssh", ssh, "--remote-command", remote)
    assert done.returncode == 0, done.stderr
    assert "came over the rails" in done.stdout
    assert same(verified, far)


def test_copy__does_not_take_a_dead_ssh_for_a_missing_tool(verified: Path, tmp_path: Path) -> None:
    dead = program(tmp_path, "ssh", "#!/bin/sh\nexit 255\n")
    done = copy(verified, "host:/nowhere", "--ssh", str(dead))
    assert done.returncode == 2
    assert "ssh to host failed" in done.stderr
    assert "rsync" not in done.stderr


def test_copy__by_an_ssh_that_is_not_there_is_one_line(verified: Path) -> None:
    done = copy(verified, "host:/nowhere", "--ssh", "/nope/ssh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "twinspark checkpoint: /nope/ssh: No such file or directory\n"


@pytest.fixture
def rsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for rsync: the list is standard input, source and target are the last words."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return program(
        tmp_path / "bin",
        "rsync",
        '#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nmkdir -p "${2#*:}"\n'
        'tar -C "$1" -cT - | tar -C "${2#*:}" -x\n',
    )


def far_tool(tmp_path: Path, *, pull: str, verify: str) -> str:
    """The program over there: notes how it was called, then does this."""
    text = f'echo "$@" >>{tmp_path}/calls\ncase $1 in pull) {pull} ;; verify) {verify} ;; esac\n'
    return str(program(tmp_path, "tool", f"#!/bin/sh\n{text}"))


@pytest.mark.usefixtures("rsync")
def test_copy__falls_back_to_rsync_where_no_stream_comes_through(
    verified: Path, tmp_path: Path, ssh: str
) -> None:
    real = f'exec {sys.executable} -m twinspark.checkpoint "$@"'
    words = ["--ssh", ssh, "--remote-command", far_tool(tmp_path, pull="exit 2", verify=real)]
    done = copy(verified, f"host:{tmp_path / 'far'}", *words)
    assert done.returncode == 0, done.stderr
    assert "falling back to rsync" in done.stderr
    assert same(verified, tmp_path / "far")
    assert all("--beside-engine" in call for call in (tmp_path / "calls").open())
    assert copy(verified, f"host:{tmp_path / 'far'}", *words, "--via", "streams").returncode == 2


@pytest.mark.usefixtures("rsync")
def test_copy__to_a_node_without_the_tool_says_so_and_takes_rsync_when_told(
    verified: Path, tmp_path: Path, ssh: str
) -> None:
    far = tmp_path / "far"
    words = ["--ssh", ssh, "--remote-command", "no-such-tool"]
    done = copy(verified, f"host:{far}", *words)
    assert done.returncode == 2
    assert "host has no `no-such-tool`: name it with --remote-command" in done.stderr
    assert not far.exists()
    done = copy(verified, f"host:{far}", *words, "--via", "rsync")  # sha256sum verifies
    assert done.returncode == 0, done.stderr
    assert same(verified, far)


@pytest.mark.usefixtures("rsync")
@pytest.mark.parametrize(
    ("status", "ends", "complaint"),
    [
        (1, 1, "is not what was sent"),
        (2, 2, "could not be verified there (status 2)"),
        (255, 2, "could not be verified there (status 255)"),
    ],
)
def test_copy__tells_a_wrong_copy_from_one_that_could_not_be_verified(
    verified: Path, tmp_path: Path, ssh: str, *, status: int, ends: int, complaint: str
) -> None:
    tool = far_tool(tmp_path, pull="exit 2", verify=f"exit {status}")
    words = ["--ssh", ssh, "--remote-command", tool, "--via", "rsync"]
    done = copy(verified, f"host:{tmp_path / 'far'}", *words)
    assert done.returncode == ends
    assert complaint in done.stderr


def test_copy__by_an_rsync_that_fails_is_one_line(verified: Path, rsync: Path, ssh: str) -> None:
    rsync.write_text("#!/bin/sh\nexit 12\n")
    done = copy(verified, "host:/nowhere", "--ssh", ssh, "--via", "rsync")
    assert done.returncode == 2
    assert done.stderr == (
        "twinspark checkpoint: rsync to host ended with status 12: see what it says above, "
        "run the copy again to go on\n"
    )


@pytest.mark.parametrize("via", ["streams", "auto"])
def test_copy__that_nobody_took_from_here_is_none(verified: Path, via: str) -> None:
    done = copy(verified, "host:/nowhere", "--ssh", "true", "--via", via)
    assert done.returncode == 2
    assert "nothing was copied" in done.stderr
    assert "rsync" not in done.stderr


def test_serve_and_pull__work_as_programs(verified: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("k" * 40)
        (tmp_path / name).chmod(0o600)
    tool = [sys.executable, "-m", "twinspark.checkpoint"]
    where = ["127.0.0.1", "--port"]
    ends = ["--beside-engine", "--token-file"]
    serving = subprocess.Popen(
        [*tool, "serve", verified, "--listen", *where, free_port(), *ends, tmp_path / "a"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    port = serving.stdout.readline().split()[-1]
    pulling = [*tool, "pull", tmp_path / "far", "--from", *where, port, *ends, tmp_path / "b"]
    pulled = subprocess.run(
        [*pulling, "--json", "--quiet"], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(pulled.stdout)["schema"] == "twinspark.checkpoint-copy/1"
    assert serving.wait(10) == 0
    assert same(verified, tmp_path / "far")
    assert not (tmp_path / "a").exists()


def test_stalled_server__counts_as_broken() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    begun = time.monotonic()
    with pytest.raises(wire.PeerError):
        wire.connect("127.0.0.1", listener.getsockname()[1], TOKEN, 0.3)  # it never says anything
    assert time.monotonic() - begun < 3.0
    listener.close()


def test_streams_that_only_break__are_named_as_the_reason(
    server: sender.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Breaks(monkeypatch, 1, for_good=True)
    with pytest.raises(CannotRunError, match="broke off: the other side closed a stream"):
        receiver.pull(tmp_path / "far", peer(server.port, patience=-1.0), QUIET)
