"""Fetching from a directory: the offline source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from checkpoint.builders import INDEX, flip
from twinspark.checkpoint import stamp, verify
from twinspark.checkpoint.__main__ import main
from twinspark.checkpoint.errors import CannotRunError
from twinspark.checkpoint.manifest import MANIFEST_NAME, PARTS_NAME, read
from twinspark.checkpoint.space import check_space

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARD = "model-00002-of-00003.safetensors"


def fetch(monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, *words: str) -> int:
    arguments = ["fetch", "--from-directory", source, target, "--quiet", *words]
    monkeypatch.setattr("sys.argv", ["twinspark checkpoint", *map(str, arguments)])
    return main()


def test_fetch__copies_verifies_and_stamps(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    assert fetch(monkeypatch, model, target, "--check") == 1
    assert fetch(monkeypatch, model, target) == 0
    assert stamp.check(target).files == 6
    assert read(target / MANIFEST_NAME).origin == "source"
    assert not (target / PARTS_NAME).exists()
    assert not (model / MANIFEST_NAME).exists()  # nothing is written at the source
    assert fetch(monkeypatch, model, target, "--check") == 0


def test_check__notices_a_source_that_changed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    fetch(monkeypatch, model, target)
    flip(model / "model-00001-of-00003.safetensors")
    assert fetch(monkeypatch, model, target, "--check") == 1
    assert "holds something else" in capsys.readouterr().err
    assert fetch(monkeypatch, model, target) == 0
    assert fetch(monkeypatch, model, target, "--check") == 0


def test_fetch__copies_only_what_differs(
    verified: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "target"
    fetch(monkeypatch, verified, target)
    flip(target / "model-00001-of-00003.safetensors")
    size = (target / "model-00001-of-00003.safetensors").stat().st_size
    capsys.readouterr()
    assert fetch(monkeypatch, verified, target) == 0
    assert f"{size} bytes fetched" in capsys.readouterr().out


def test_fetch__keeps_the_manifest_of_the_source_and_holds_it_to_that(
    verified: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fetch(monkeypatch, verified, tmp_path / "one") == 0
    assert (tmp_path / "one" / MANIFEST_NAME).read_bytes() == (
        verified / MANIFEST_NAME
    ).read_bytes()
    flip(verified / "config.json")
    assert fetch(monkeypatch, verified, tmp_path / "two") == 1
    assert "is not what its manifest says: config.json" in capsys.readouterr().err
    assert fetch(monkeypatch, verified, tmp_path / "two", "--check") == 1


def test_fetch__refuses_to_mix_with_other_files(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine.txt").write_text("x")
    assert fetch(monkeypatch, model, tmp_path / "target") == 1
    assert "mine.txt" in capsys.readouterr().err


def test_fetch__looks_for_room_first(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 5}))
    assert fetch(monkeypatch, model, tmp_path / "target") == 2
    assert "5 are free" in capsys.readouterr().err
    assert list((tmp_path / "target").iterdir()) == []


def test_room__is_what_is_to_come_and_256_mib_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10 + 268_435_456
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": free}))
    check_space(tmp_path, 10)
    with pytest.raises(CannotRunError, match="11 bytes are to come and 268435456 must stay free"):
        check_space(tmp_path, 11)


def test_fetch__of_a_directory_that_is_not_there_could_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch(monkeypatch, tmp_path / "nowhere", tmp_path / "target") == 2


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda root: os.truncate(root / SHARD, 50_000), f"{SHARD}: header: promises"),
        (lambda root: (root / SHARD).unlink(), f"names '{SHARD}', which is missing"),
        (lambda root: (root / INDEX).write_text("{"), f"{INDEX}: is not JSON"),
        (lambda root: [path.unlink() for path in root.glob("*.safetensors")], "no safetensors"),
    ],
)
def test_fetch__blames_the_source_for_what_is_wrong_there_and_copies_nothing(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    damage: Callable[[Path], object],
    complaint: str,
) -> None:
    damage(model)
    assert fetch(monkeypatch, model, tmp_path / "target") == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert f"{model}" in error
    assert f"{tmp_path / 'target'}" not in error
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "target"), [("model", "model/sub"), ("model/encoding", "model")]
)
def test_fetch__refuses_one_directory_within_the_other(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    source: str,
    target: str,
) -> None:
    before = sorted(model.rglob("*"))
    assert fetch(monkeypatch, tmp_path / source, tmp_path / target) == 2
    assert "lies within" in capsys.readouterr().err
    assert sorted(model.rglob("*")) == before


@pytest.mark.parametrize("target", ["file", "file/below", "/proc/twinspark"])
def test_fetch__into_what_cannot_be_a_directory_names_it(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    target: str,
) -> None:
    (tmp_path / "file").write_text("x")
    assert fetch(monkeypatch, model, tmp_path / target) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / target) in error
    assert error.count("\n") == 1


def test_fetch__into_itself_only_verifies(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch(monkeypatch, model, model) == 0
    assert verify.verify(model, verify.Options(quiet=True)).problems == ()
