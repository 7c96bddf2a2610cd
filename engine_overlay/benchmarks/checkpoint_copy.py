"""copy between two network namespaces: against raw sockets, beside rsync, with cut rails.

    python engine_overlay/benchmarks/checkpoint_copy.py --work /var/tmp --out RESULT.json

Needs root, iproute2, rsync and sshd; makes two namespaces and removes them. The full set (--files,
--size) is copied to the disk; a part of it that fits into memory is copied to /dev/shm, where the
link and the cores are the limit.
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_common import evict, make_files, provenance, summary, write

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL = [sys.executable, "-m", "twinspark.checkpoint"]
RAW = str(Path(__file__).with_name("checkpoint_raw_socket.py"))
NEAR, FAR = f"ckb{os.getpid()}n", f"ckb{os.getpid()}f"
RAILS = ("10.99.1.1", "10.99.2.1")
PORT = 29571


def sh(*words: object) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(word) for word in words], check=True)


def within(space: str, *words: object) -> list[str]:
    """A command line that runs in a namespace."""
    return ["ip", "netns", "exec", space, *map(str, words)]


@contextmanager
def namespaces() -> Iterator[None]:
    """Two namespaces with two rails between them, MTU 9000."""
    try:
        for space in (NEAR, FAR):
            sh("ip", "netns", "add", space)
            sh("ip", "-n", space, "link", "set", "lo", "up")
        for rail in (1, 2):
            end = ("name", f"rail{rail}", "netns")
            sh("ip", "link", "add", f"rail{rail}", "netns", NEAR, "type", "veth", "peer", *end, FAR)
            for number, space in enumerate((NEAR, FAR), start=1):
                sh(
                    "ip",
                    "-n",
                    space,
                    "address",
                    "add",
                    f"10.99.{rail}.{number}/24",
                    "dev",
                    f"rail{rail}",
                )
                sh("ip", "-n", space, "link", "set", f"rail{rail}", "mtu", 9000, "up")
        yield
    finally:
        for space in (NEAR, FAR):
            subprocess.run(["ip", "netns", "delete", space], check=False)


def rail(number: int, state: str) -> None:
    """Cut (`down`) or join (`up`) a rail at the serving end."""
    sh("ip", "-n", NEAR, "link", "set", f"rail{number}", state)


@dataclass
class Bench:
    """Where things lie, and with how many streams a rail."""

    work: Path
    streams: int

    def tokens(self) -> list[Path]:
        """The same one-time token for both sides."""
        token = secrets.token_hex(32)
        paths = [self.work / f"token-{side}" for side in "ab"]
        for path in paths:
            path.touch(mode=0o600)
            path.write_text(token)
        return paths

    @contextmanager
    def serving(self, source: Path, token: Path) -> Iterator[subprocess.Popen[str]]:
        """`serve` in the near namespace."""
        command = [
            *TOOL,
            "serve",
            source,
            "--listen",
            ",".join(RAILS),
            "--port",
            PORT,
            "--token-file",
            token,
        ]
        process = subprocess.Popen(
            within(NEAR, *command, "--beside-engine", "--idle", 60),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101 - asked for above
        process.stdout.readline()
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def pull_command(self, target: Path, token: Path, *words: object) -> list[str]:
        """`pull` in the far namespace."""
        command = [
            *TOOL,
            "pull",
            target,
            "--from",
            ",".join(RAILS),
            "--port",
            PORT,
            "--token-file",
            token,
        ]
        return within(
            FAR, *command, "--streams", self.streams, "--beside-engine", "--quiet", "--json", *words
        )

    def pull(self, source: Path, target: Path) -> dict[str, float]:
        """One copy with the tool."""
        near, far = self.tokens()
        with self.serving(source, near):
            done = subprocess.run(
                self.pull_command(target, far), stdout=subprocess.PIPE, text=True, check=True
            )
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def raw(self, source: Path, target: Path) -> tuple[float, float]:
        """Seconds, and processor seconds of the far side, of the same bytes by bare sockets."""
        streams = self.streams * len(RAILS)
        server = subprocess.Popen(
            within(NEAR, sys.executable, RAW, "send", source, ",".join(RAILS), PORT, streams),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None  # noqa: S101 - asked for above
        server.stdout.readline()
        command = [sys.executable, RAW, "receive", target, ",".join(RAILS), PORT, streams]
        done = subprocess.run(within(FAR, *command), stdout=subprocess.PIPE, text=True, check=True)
        server.wait()
        wall, cpu = map(float, done.stdout.split())
        return wall, cpu

    @contextmanager
    def sshd(self) -> Iterator[list[str]]:
        """An sshd of our own in the near namespace; yields the words that reach it."""
        home = self.work / "ssh"
        home.mkdir(mode=0o700)
        for name in ("host", "user"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name)
        shutil.copy(home / "user.pub", home / "authorized")
        Path("/run/sshd").mkdir(exist_ok=True)
        options = {
            "HostKey": home / "host",
            "AuthorizedKeysFile": home / "authorized",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "yes",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        server = subprocess.Popen(
            within(NEAR, "/usr/sbin/sshd", "-D", "-f", "/dev/null", "-p", 2222, *words)
        )
        time.sleep(1)
        try:
            known = f"UserKnownHostsFile={home}/known"
            trust = ["BatchMode=yes", "StrictHostKeyChecking=no", known]
            words = [word for option in trust for word in ("-o", option)]
            yield ["ssh", "-p", "2222", "-i", str(home / "user"), *words]
        finally:
            server.terminate()
            server.wait()

    def rsync(self, source: Path, target: Path, ssh: list[str]) -> float:
        """Seconds of a single rsync over ssh."""
        begun = time.monotonic()
        command = [
            "rsync",
            "--archive",
            "--rsh",
            " ".join(ssh),
            f"root@{RAILS[0]}:{source}/",
            f"{target}/",
        ]
        subprocess.run(within(FAR, *command), check=True)
        return time.monotonic() - begun


def compare(
    bench: Bench, source: Path, target: Path, rounds: int, ssh: list[str]
) -> dict[str, object]:
    """Copy, raw sockets and rsync in turns, each to an empty target from a cold source."""
    total = sum(path.stat().st_size for path in source.glob("*.bin"))
    seconds: dict[str, list[float]] = {"copy": [], "raw_socket": [], "rsync_ssh": []}
    cpu: dict[str, list[float]] = {"copy": [], "raw_socket": []}
    verify = []
    for number in range(rounds):
        for name, mine in seconds.items():
            if name == "rsync_ssh" and number:
                continue  # once is enough for what is several times slower
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
            evict(source)
            if name == "copy":
                done = bench.pull(source, target)
                mine.append(done["transfer_s"])
                cpu[name].append(done["transfer_cpu_s"])
                verify.append(done["verify_s"])
            elif name == "raw_socket":
                wall, used = bench.raw(source, target)
                mine.append(wall)
                cpu[name].append(used)
            else:
                mine.append(bench.rsync(source, target, ssh))
    shutil.rmtree(target, ignore_errors=True)
    return {
        "bytes": total,
        "target": str(target.parent),
        "n": rounds,
        "gb_per_s": {k: summary([total / s / 1e9 for s in v]) for k, v in seconds.items()},
        "ratio_to_raw_socket": summary(
            [raw / mine for raw, mine in zip(seconds["raw_socket"], seconds["copy"], strict=True)]
        ),
        "ratio_to_rsync": summary([rsync / seconds["copy"][0] for rsync in seconds["rsync_ssh"]]),
        "far_cpu_s": {k: summary(v) for k, v in cpu.items()},
        "ratio_to_raw_socket_cpu": summary(
            [raw / mine for raw, mine in zip(cpu["raw_socket"], cpu["copy"], strict=True)]
        ),
        "verify_s": summary(verify),
    }


def wait_for(target: Path, count: int) -> None:
    """Until part files hold so many bytes."""
    while sum(p.stat().st_blocks * 512 for p in target.rglob("*.bin")) < count:
        time.sleep(0.02)


def cut_one(bench: Bench, source: Path, target: Path, total: int) -> dict[str, object]:
    """Cut a rail for good at a third of the way: the other brings the rest, nothing twice."""
    near, far = bench.tokens()
    with bench.serving(source, near):
        pulling = subprocess.Popen(
            bench.pull_command(target, far, "--stall", 3), stdout=subprocess.PIPE, text=True
        )
        wait_for(target, total // 3)
        rail(2, "down")
        text, _ = pulling.communicate()
    rail(2, "up")
    done = json.loads(text)
    shutil.rmtree(target)
    return {
        "total": done["total"],
        "received": done["received"],
        "sent_twice": done["received"] - done["total"],
        "streams_opened_anew": done["reconnects"],
        "transfer_s": round(done["transfer_s"], 2),
    }


def cut_all(bench: Bench, source: Path, target: Path, total: int) -> dict[str, object]:
    """Cut both rails until the copy gives up, join them, run it again: it sends the rest only."""
    near, far = bench.tokens()
    with bench.serving(source, near):
        pulling = subprocess.Popen(
            bench.pull_command(target, far, "--stall", 2, "--patience", 4),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(target, total // 2)
        rail(1, "down")
        rail(2, "down")
        _, complaint = pulling.communicate()
    rail(1, "up")
    rail(2, "up")
    time.sleep(1)
    done = bench.pull(source, target)
    shutil.rmtree(target)
    return {
        "first_run": {"exit": pulling.returncode, "said": complaint.strip()[-200:]},
        "second_run": {key: done[key] for key in ("total", "resumed", "received")},
        "sent_twice": done["resumed"] + done["received"] - done["total"],
    }


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"))  # noqa: S108 - a disk, not a secret
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--size", type=int, default=700 * 10**6)
    parser.add_argument("--memory-files", type=int, default=3, help="of them copied to /dev/shm")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    origin = provenance()
    work = Path(tempfile.mkdtemp(prefix="twinspark-bench-", dir=args.work))
    memory = Path(tempfile.mkdtemp(prefix="twinspark-bench-", dir="/dev/shm"))
    bench = Bench(work, args.streams)
    try:
        small, large = work / "small", work / "large"
        part = make_files(small, files=args.memory_files, size=args.size)
        make_files(large, files=args.files, size=args.size)
        for source in (small, large):
            sh(*TOOL, "verify", source, "--quiet", "--beside-engine")
        with namespaces(), bench.sshd() as ssh:
            result: dict[str, object] = {
                "schema": "twinspark.bench/1",
                "benchmark": "checkpoint copy",
                "provenance": origin,
                "link": "two veth pairs between two network namespaces of one machine, MTU 9000",
                "streams_a_rail": args.streams,
                "to_memory": compare(bench, small, memory / "copy", args.rounds, ssh),
                "to_disk": compare(bench, large, work / "copy", args.rounds, ssh),
                "one_rail_cut": cut_one(bench, small, work / "copy", part),
                "both_rails_cut": cut_all(bench, small, work / "copy", part),
            }
        write(args.out, result)
    finally:
        shutil.rmtree(work)
        shutil.rmtree(memory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
