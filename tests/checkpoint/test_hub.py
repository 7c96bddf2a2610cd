"""Fetching from a Hub: pinned, resumed, held against its digests. The Hub is a fake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from checkpoint.builders import flip
from checkpoint.fake_hub import REPOSITORY, FakeHub
from twinspark.checkpoint import identity, known, stamp, verify
from twinspark.checkpoint.__main__ import main
from twinspark.checkpoint.manifest import MANIFEST_NAME, PARTS_NAME, STAMP_NAME, read, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Fetch = Callable[..., "Done"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHARD = "model-00001-of-00003.safetensors"


@pytest.fixture
def hub(model: Path) -> Iterator[FakeHub]:
    files = {
        str(path.relative_to(model)): path.read_bytes()
        for path in sorted(model.rglob("*"))
        if path.is_file()
    }
    served = FakeHub(COMMIT, files)
    yield served
    served.close()


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stderr: str


@pytest.fixture
def fetch(
    hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Done]:
    """The command, in this process."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    def run(target: Path, *words: str, revision: str = COMMIT) -> Done:
        source = ["--repository", hub.repository, "--revision", revision, "--connections", "2"]
        monkeypatch.setattr("sys.argv", ["", "fetch", str(target), "--quiet", *source, *words])
        return Done(main(), capsys.readouterr().err)

    return run


def test_fetch__brings_all_and_verifies_it_by_the_hubs_digests(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    target = tmp_path / "target"
    done = fetch(target)
    assert done.returncode == 0, done.stderr
    manifest = read(target / MANIFEST_NAME)
    assert (manifest.origin, manifest.source) == ("hub", f"{REPOSITORY}@{COMMIT}")
    assert {entry.path: entry.size for entry in manifest.files} == {
        n: len(c) for n, c in hub.files.items()
    }
    assert stamp.check(target).files == len(hub.files)
    assert not (target / PARTS_NAME).exists()
    assert not list((tmp_path / "home").rglob("xet"))
    assert fetch(target, "--check").returncode == 0
    assert fetch(target, "--check", revision=COMMIT[:8]).returncode == 0
    assert fetch(target, "--check", revision="f" * 40).returncode == 1


@pytest.mark.parametrize(
    ("repository", "revision", "status"),
    [
        (known.REPOSITORY, known.REVISIONS[0], 0),
        (known.REPOSITORY, known.REVISIONS[1], 0),
        (known.REPOSITORY, known.REVISIONS[1][:8], 0),
        (known.REPOSITORY, "f" * 40, 1),
        ("someone/other", known.REVISIONS[0], 1),
        ("someone/other", "deadbeef", 1),
        (known.REPOSITORY, "main", 2),
        ("someone/other", "", 2),
    ],
)
def test_check__takes_0731_from_wherever_it_came_and_for_nothing_else(
    verified: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    repository: str,
    revision: str,
    status: int,
) -> None:
    here = replace(read(verified / MANIFEST_NAME), origin="known", kind="0731", source="/mnt")
    verify.record(verified, here, scan(verified))
    wish = ["--repository", repository, "--revision", revision]
    monkeypatch.setattr("sys.argv", ["", "fetch", "--check", *wish, str(verified)])
    assert main() == status
    assert capsys.readouterr().err.count("\n") == (status != 0)


def test_cut_connection__goes_on_where_it_broke(hub: FakeHub, tmp_path: Path, fetch: Fetch) -> None:
    hub.break_after, hub.breaks = 50_000, 3
    done = fetch(tmp_path / "target")
    assert done.returncode == 0, done.stderr
    assert hub.sent == sum(map(len, hub.files.values()))  # nothing twice
    assert any(wish == "bytes=50000-" for _, wish in hub.ranges)


def test_killed_fetch__goes_on_within_the_file(hub: FakeHub, tmp_path: Path, fetch: Fetch) -> None:
    part = tmp_path / "target" / PARTS_NAME / "files" / SHARD
    part.parent.mkdir(parents=True)
    part.write_bytes(hub.files[SHARD][:77_777])
    done = fetch(tmp_path / "target")
    assert done.returncode == 0, done.stderr
    assert (SHARD, "bytes=77777-") in hub.ranges
    assert hub.sent == sum(map(len, hub.files.values())) - 77_777


def test_server_that_ignores_ranges__starts_the_file_again(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    hub.break_after, hub.breaks, hub.ignore_ranges = 50_000, 1, True
    assert fetch(tmp_path / "target").returncode == 0


def test_corrupt_beginning__is_found_by_the_digest_and_fetched_anew(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    target = tmp_path / "target"
    part = target / PARTS_NAME / "files" / SHARD
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\0" * 1000)
    done = fetch(target)
    assert done.returncode == 1
    assert SHARD in done.stderr
    hub.sent = 0
    assert fetch(target).returncode == 0
    assert hub.sent == len(hub.files[SHARD])


def test_second_fetch__loads_only_what_is_wrong(hub: FakeHub, tmp_path: Path, fetch: Fetch) -> None:
    fetch(tmp_path / "target")
    flip(tmp_path / "target" / SHARD)
    hub.sent = 0
    assert fetch(tmp_path / "target").returncode == 0
    assert hub.sent == len(hub.files[SHARD])


def test_short_commit__is_completed_and_a_branch_refused(tmp_path: Path, fetch: Fetch) -> None:
    done = fetch(tmp_path / "target", revision=COMMIT[:8])
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "target" / MANIFEST_NAME).source.endswith(f"@{COMMIT}")
    done = fetch(tmp_path / "other", revision="main")
    assert done.returncode == 2
    assert "only commits are taken" in done.stderr
    done = fetch(tmp_path / "other", revision="abcdef0")
    assert done.returncode == 2
    assert "0 commits" in done.stderr


@pytest.mark.parametrize(("fault", "status"), [(("listed_sha", "f" * 40), 1), (("status", 403), 2)])
def test_hub_that_answers_otherwise__is_not_followed(
    hub: FakeHub, tmp_path: Path, fetch: Fetch, fault: tuple[str, object], status: int
) -> None:
    setattr(hub, *fault)
    done = fetch(tmp_path / "target")
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "target" / MANIFEST_NAME).exists()


def test_hostile_path__never_reaches_the_disk(hub: FakeHub, tmp_path: Path, fetch: Fetch) -> None:
    hub.files["../escape"] = b"x"
    done = fetch(tmp_path / "target")
    assert done.returncode == 1
    assert not (tmp_path / "escape").exists()


def test_hub_that_is_not_there__could_not_run(hub: FakeHub, tmp_path: Path, fetch: Fetch) -> None:
    hub.close()
    done = fetch(tmp_path / "target")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_0731_with_other_shards__is_refused_before_a_byte(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    hub.repository = known.REPOSITORY
    done = fetch(tmp_path / "target")
    assert done.returncode == 1
    assert "does not hold 0731's model-00001-of-00048.safetensors" in done.stderr
    assert hub.sent == 0


def test_repository_without_weights__is_refused_before_a_byte(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    hub.files = {name: data for name, data in hub.files.items() if "safetensors" not in name}
    done = fetch(tmp_path / "target")
    assert done.returncode == 1
    assert "holds no safetensors file" in done.stderr
    assert list((tmp_path / "target").iterdir()) == []


def test_index_that_does_not_fit__leaves_no_manifest(
    hub: FakeHub, tmp_path: Path, fetch: Fetch
) -> None:
    del hub.files[SHARD]
    done = fetch(tmp_path / "target")
    assert done.returncode == 1
    assert f"names '{SHARD}', which is missing" in done.stderr
    assert not (tmp_path / "target" / MANIFEST_NAME).exists()


def test_index_that_does_not_fit__costs_the_stamp_of_an_earlier_version(
    hub: FakeHub, tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    del hub.files[SHARD]
    with monkeypatch.context() as earlier:
        earlier.setattr(identity, "weight_problems", lambda *_: [])
        assert fetch(tmp_path / "target").returncode == 0
    assert stamp.check(tmp_path / "target")
    assert fetch(tmp_path / "target").returncode == 1
    assert not (tmp_path / "target" / STAMP_NAME).exists()


def test_hub_cache__resolves_by_name_offline(tmp_path: Path, fetch: Fetch) -> None:
    cache = tmp_path / "cache"
    assert fetch(tmp_path / "target", "--hub-cache", str(cache)).returncode == 0
    ref = cache / "models--deepseek-ai--Small" / "refs" / "main"
    assert ref.read_bytes() == COMMIT.encode()
    code = (
        "import json, huggingface_hub as h; print(json.dumps(["
        f"h.snapshot_download({REPOSITORY!r}, cache_dir={str(cache)!r}),"
        f"h.hf_hub_download({REPOSITORY!r}, 'config.json', cache_dir={str(cache)!r})]))"
    )

    def resolve() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    folder, config = json.loads(resolve().stdout)
    assert folder.endswith(f"snapshots/{COMMIT}")
    assert config == f"{folder}/config.json"
    ref.write_bytes(COMMIT.encode() + b"\n")
    assert resolve().returncode != 0  # what the missing newline is for
