"""Verification: it finds what is wrong, names it, and takes the stamp away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from checkpoint.builders import INDEX, checkpoint, flip, shard
from twinspark.checkpoint import hashing, known, live, stamp, verify
from twinspark.checkpoint.__main__ import main
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import (
    MANIFEST_NAME,
    STAMP_NAME,
    STATE_NAME,
    FileEntry,
    of,
    read,
    scan,
)
from twinspark.checkpoint.progress import Silent

QUIET = verify.Options(quiet=True)
SHARD = "model-00002-of-00003.safetensors"


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["twinspark checkpoint", *map(str, words)])
    return main()


def test_first_use__records_and_says_so(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "verify", model, "--quiet") == 0
    assert "first use" in capsys.readouterr().out
    assert read(model / MANIFEST_NAME).origin == "first-use"
    assert command(monkeypatch, "verify", model, "--quiet") == 0
    assert "first use" not in capsys.readouterr().out


def test_empty_directory__is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch, "verify", tmp_path, "--quiet") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ["verify", "manifest"])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda root: [path.unlink() for path in root.glob("*.safetensors")], "no safetensors"),
        (lambda root: (root / SHARD).unlink(), f"names '{SHARD}', which is missing"),
        (lambda root: (root / INDEX).write_text("{"), "index.json: is not JSON"),
        (lambda root: (root / INDEX).write_text("{}"), "`weight_map` is not an object"),
        (lambda root: shard(root / "dspark.safetensors", {}), "is not in the index"),
    ],
)
def test_first_use__refuses_weights_that_the_index_does_not_fit(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    action: str,
    damage: object,
    complaint: str,
) -> None:
    damage(model)  # type: ignore[operator]
    before = sorted(model.iterdir())
    assert command(monkeypatch, action, model, "--quiet") == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert sorted(model.iterdir()) == before


@pytest.mark.parametrize("names", [["model"], ["a", "b"]])
def test_first_use__takes_shards_without_an_index(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        shard(tmp_path / f"{name}.safetensors", {name: ("U8", [3], b"abc")})
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "twinspark-oracle.json").write_text("{}")
    assert verify.verify(tmp_path, QUIET).problems == ()


def test_equal_directories__get_equal_manifests(tmp_path: Path) -> None:
    first, second = (checkpoint(tmp_path / name) for name in ("one", "two"))
    for root in (first, second):
        verify.verify(root, QUIET)
    assert (first / MANIFEST_NAME).read_bytes() == (second / MANIFEST_NAME).read_bytes()


def test_flipped_byte__is_found_by_a_full_run_and_costs_the_stamp(verified: Path) -> None:
    flip(verified / SHARD)
    report = verify.verify(verified, QUIET)
    assert len(report.problems) == 1
    assert f"{SHARD} is corrupt" in report.problems[0]
    assert not (verified / STAMP_NAME).exists()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda root: os.truncate(root / SHARD, 1000), "is truncated by"),
        (lambda root: (root / SHARD).open("ab").write(b"xx"), "is 2 bytes too long"),
        (lambda root: (root / SHARD).unlink(), "is missing"),
        (lambda root: (root / "extra.bin").write_text("x"), "extra.bin is unexpected"),
    ],
)
def test_damage_that_sizes_show__is_named_without_hashing(
    verified: Path, damage: object, complaint: str
) -> None:
    damage(verified)  # type: ignore[operator]
    report = verify.verify(verified, QUIET)
    assert [complaint in problem for problem in report.problems] == [True]
    assert report.hashed == 0
    assert not (verified / STAMP_NAME).exists()


def test_wrong_header_length__is_found_at_first_use(model: Path) -> None:
    with (model / SHARD).open("r+b") as stream:
        stream.write((2**40).to_bytes(8, "little"))
    report = verify.verify(model, QUIET)
    assert "claims a header of 1099511627776 bytes" in report.problems[0]
    assert not (model / MANIFEST_NAME).exists()


def test_all_damage__is_reported_at_once(verified: Path) -> None:
    flip(verified / SHARD)
    flip(verified / "model-00001-of-00003.safetensors")
    assert len(verify.verify(verified, QUIET).problems) == 2


def test_stamp__holds_while_nothing_changes_and_expects_a_tree(verified: Path) -> None:
    tree = stamp.check(verified).tree_sha256
    assert stamp.check(verified, tree).files == 6
    with pytest.raises(CheckpointError, match="is another checkpoint"):
        stamp.check(verified, "0" * 64)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: flip(root / SHARD),
        lambda root: os.utime(root / SHARD, ns=(1, 1)),
        lambda root: (root / SHARD).unlink(),
        lambda root: (root / "new").write_text(""),
        lambda root: (root / MANIFEST_NAME).write_text((root / MANIFEST_NAME).read_text() + " "),
    ],
)
def test_stamp__does_not_survive_a_change(verified: Path, change: object) -> None:
    change(verified)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match="changed since"):
        stamp.check(verified)


def test_stamp_only__refuses_an_unverified_checkpoint(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "verify", "--stamp-only", model) == 1
    assert "is not verified" in capsys.readouterr().err
    verify.verify(model, QUIET)
    assert command(monkeypatch, "verify", "--stamp-only", model) == 0
    assert command(monkeypatch, "verify", "--stamp-only", model / "nowhere") == 2


def test_stamp_only__reads_no_weights(verified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, *a, **k: (opened.append(self.name), real(self, *a, **k))[1]
    )
    stamp.check(verified)
    assert set(opened) <= {STAMP_NAME, MANIFEST_NAME}


def test_live_engine__is_not_disturbed_unless_asked(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "engine", lambda: "unit vllm-deepseek-mxfp4@x.service")
    assert command(monkeypatch, "verify", model, "--quiet") == 2
    assert "vllm-deepseek-mxfp4@x.service" in capsys.readouterr().err
    assert not (model / MANIFEST_NAME).exists()
    assert command(monkeypatch, "verify", model, "--quiet", "--beside-engine") == 0
    # the unit itself asks this while it is starting
    assert command(monkeypatch, "verify", "--stamp-only", model) == 0


@pytest.mark.parametrize(
    ("argv", "engine"),
    [
        (
            [
                "/opt/twinspark/current/venv/bin/python3",
                "/opt/x/bin/vllm",
                "serve",
                "--config",
                "c",
            ],
            True,
        ),
        (["vllm", "serve", "m"], True),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], True),
        (["VLLM::EngineCore"], True),
        (["VLLM::Worker_TP1"], True),
        (["vllm", "bench", "serve"], False),
        (["twinspark", "checkpoint", "verify"], False),
        (["vim", "vllm"], False),
        ([], False),
    ],
)
def test_engine_process__is_told_by_its_command_line(argv: list[str], engine: bool) -> None:
    assert live.is_engine(argv) is engine


def test_processes__are_read_from_proc(tmp_path: Path) -> None:
    for pid, argv in {"17": b"/usr/bin/python3\0/x/vllm\0serve\0m\0", "18": b"bash\0"}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(argv)
    (tmp_path / "self").mkdir()
    (tmp_path / "19").mkdir()  # it ended between the listing and the reading
    assert live.processes(tmp_path) == ["17: /usr/bin/python3 /x/vllm serve m"]


def test_live__says_that_systemd_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nexec sleep 5\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(live, "PATIENCE_S", 0.2)
    with pytest.raises(CannotRunError, match=r"does not say within 0\.2 s whether an engine runs"):
        live.units()


def test_interrupted_run__hashes_only_the_rest(
    verified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = hashing.sha256_of, []

    def breaks(path: Path, *rest: object, **named: object) -> hashing.Hashed:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(path.name)
        return real(path, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(hashing, "sha256_of", breaks)
    with pytest.raises(KeyboardInterrupt):
        verify.verify(verified, verify.Options(workers=1, quiet=True))
    assert (verified / STATE_NAME).exists()
    monkeypatch.setattr(hashing, "sha256_of", real)
    report = verify.verify(verified, QUIET)
    total = sum(stat.st_size for stat in scan(verified).values())
    finished = sum((verified / name).stat().st_size for name in done)
    assert (report.problems, report.hashed) == ((), total - finished)
    assert not (verified / STATE_NAME).exists()


def test_interrupted_run__does_not_trust_a_file_that_changed_since(verified: Path) -> None:
    state = hashing.state_of(verified)
    stat = (verified / SHARD).stat()
    state.record(SHARD, hashing.Hashed(stat.st_size, stat.st_mtime_ns, "0" * 64))
    state.close(finished=False)
    with (verified / STATE_NAME).open("a") as stream:
        stream.write('["cut')  # the line that the interruption cut
    assert verify.verify(
        verified, QUIET
    ).problems  # the recorded digest counts while the file is the same
    state = hashing.state_of(verified)
    state.record(SHARD, hashing.Hashed(stat.st_size, stat.st_mtime_ns - 1, "0" * 64))
    state.close(finished=False)
    assert verify.verify(verified, QUIET).problems == ()


@pytest.mark.parametrize(
    "line",
    ['["a","b","c","d"]', '"abcd"', '["a",1e999,1,"d"]', '["a",1,null,"d"]', "7", "[" * 10**5],
)
def test_state__of_something_else_is_nothing_done(verified: Path, line: str) -> None:
    (verified / STATE_NAME).write_text(f"{line}\n")
    assert verify.verify(verified, QUIET).problems == ()


def test_file_that_grows_while_it_is_read__could_not_be_verified(model: Path) -> None:
    files = scan(model)
    with (model / SHARD).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(CannotRunError, match="changed while it was read"):
        hashing.sha256_all(model, files, meter=Silent(), workers=2, state=hashing.State(None))


def test_other_manifest__decides(
    verified: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [FileEntry(e.path, e.size, "0" * 64) for e in read(verified / MANIFEST_NAME).files]
    (tmp_path / "other.json").write_text(of(rows, origin="source").to_json())
    assert (
        command(monkeypatch, "verify", verified, "--quiet", "--manifest", tmp_path / "other.json")
        == 1
    )
    assert not (verified / STAMP_NAME).exists()


def test_expected_tree__decides(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = read(verified / MANIFEST_NAME).tree_sha256
    ask = ["verify", verified, "--quiet", "--json", "--expect-tree"]
    assert command(monkeypatch, *ask, tree.upper()) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    assert command(monkeypatch, *ask, "0" * 64) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["tree_sha256"]) == (False, tree)
    assert report["problems"] == [f"{verified}: tree digest {tree}, expected {'0' * 64}"]
    assert not (verified / STAMP_NAME).exists()


def test_manifest_command__does_not_replace_one_unasked(
    verified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(verified / SHARD)
    assert command(monkeypatch, "manifest", verified, "--quiet") == 2
    assert command(monkeypatch, "manifest", verified, "--quiet", "--force") == 0
    assert command(monkeypatch, "verify", "--stamp-only", verified) == 0


def test_manifest_command__that_is_refused_changes_nothing(
    verified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in verified.iterdir()}
    monkeypatch.setattr(live, "engine", lambda: "unit vllm-head.service")
    assert command(monkeypatch, "manifest", verified, "--quiet", "--force") == 2
    assert {path.name: path.stat().st_mtime_ns for path in verified.iterdir()} == before
    assert stamp.check(verified).files == 6


def test_manifest_command__keeps_the_manifest_of_a_checkpoint_that_is_wrong(
    verified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (verified / MANIFEST_NAME).read_bytes()
    (verified / SHARD).unlink()
    assert command(monkeypatch, "manifest", verified, "--quiet", "--force") == 1
    assert (verified / MANIFEST_NAME).read_bytes() == before
    assert not (verified / STAMP_NAME).exists()


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "{}"],
        ["manifest", "{}"],
        ["manifest", "{}", "--force"],
        ["copy", "{}", "host:/srv"],
        ["serve", "{}", "--listen", "127.0.0.1", "--token-file", "-"],
        ["fetch", "--from-directory", "{}", "target"],
    ],
    ids=" ".join,
)
def test_missing_directory__is_named_before_an_engine_is_looked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "engine", lambda: "unit vllm-head.service")
    missing = tmp_path / "nowhere"
    assert command(monkeypatch, *(word.format(missing) for word in words)) == 2
    assert f"{missing} does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_manifest_command__on_a_file_is_one_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "manifest", model / "config.json", "--force") == 2
    error = capsys.readouterr().err
    assert f"{model / 'config.json'} is not a directory" in error
    assert error.count("\n") == 1


def test_json_report__says_what_was_verified(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "verify", verified, "--quiet", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["tree_sha256"] == read(verified / MANIFEST_NAME).tree_sha256


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (["inspect"], "inspection"),
        (["verify", "--quiet"], "report"),
        (["verify", "--stamp-only"], "stamp"),
        (["manifest", "--force", "--quiet"], "report"),
        (["fetch", "--quiet", "--from-directory", "{}"], "report"),
        (["fetch", "--check", "--from-directory", "{}"], "check"),
        (["fetch", "--check", "--revision", "deadbeef"], "check"),
    ],
    ids=" ".join,
)
def test_json__is_one_versioned_object(
    verified: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    words: list[str],
    schema: str,
) -> None:
    done = command(monkeypatch, *(word.format(verified) for word in words), "--json", verified)
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == f"twinspark.checkpoint-{schema}/1"
    assert answer.get("ok", True) == (done == 0)
    assert bool(answer.get("problems")) == (done != 0)


def known_pair(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that these two small shards are all of 0731, and known."""
    root.mkdir()
    entries = []
    for number in (1, 2):
        path = shard(root / f"s{number}.safetensors", {f"t{number}": ("U8", [3], b"abc")})
        done = hashing.sha256_of(path, Silent())
        entries.append(FileEntry(path.name, done.size, done.sha256))
    monkeypatch.setattr(known, "SHARDS", tuple(entries))
    monkeypatch.setattr(known, "FILES", {entry.path: entry for entry in entries})


def test_first_use__recognises_published_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_pair(tmp_path / "m", monkeypatch)
    report = verify.verify(tmp_path / "m", QUIET)
    assert report.manifest is not None
    assert (report.manifest.origin, report.manifest.kind) == ("known", "0731")


def test_first_use__refuses_a_corrupt_copy_of_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_pair(tmp_path / "m", monkeypatch)
    flip(tmp_path / "m" / "s1.safetensors")
    report = verify.verify(tmp_path / "m", QUIET)
    assert "1 of 2 shards" in report.problems[0]
    assert "fetch them again" in report.problems[0]
    assert not (tmp_path / "m" / STAMP_NAME).exists()


def test_first_use__refuses_a_lookalike_of_the_same_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_pair(tmp_path / "m", monkeypatch)
    for number in (1, 2):
        flip(tmp_path / "m" / f"s{number}.safetensors")
    assert "a lookalike" in verify.verify(tmp_path / "m", QUIET).problems[0]
