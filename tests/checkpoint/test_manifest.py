"""The manifest: what it holds, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinspark.checkpoint import manifest
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.manifest import FileEntry, Manifest, of, parse, scan

DIGEST = hashlib.sha256(b"x").hexdigest()


def text(**changes: object) -> str:
    document = json.loads(of([FileEntry("a", 1, DIGEST)], origin="source").to_json())
    return json.dumps(document | changes)


def test_manifest__survives_its_own_text() -> None:
    written = of(
        [FileEntry("b/c", 2, DIGEST), FileEntry("a", 1, DIGEST)],
        origin="hub",
        kind="0731",
        source="o/n@c",
    )
    assert parse(written.to_json(), "m") == written
    assert [entry.path for entry in written.files] == ["a", "b/c"]


def test_tree_digest__sees_every_part_of_an_entry() -> None:
    other = hashlib.sha256(b"y").hexdigest()
    trees = {
        Manifest((FileEntry(path, size, digest),)).tree_sha256
        for path, size, digest in [
            ("a", 1, DIGEST),
            ("b", 1, DIGEST),
            ("a", 2, DIGEST),
            ("a", 1, other),
        ]
    }
    assert len(trees) == 4


def test_tree_digest__says_nothing_of_where_the_digests_came_from() -> None:
    entry = (FileEntry("a", 1, DIGEST),)
    assert Manifest(entry, "hub", "0731").tree_sha256 == Manifest(entry, "first-use").tree_sha256


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (text(schema="other/9"), "schema is 'other/9'"),
        (text(files=[]), "`files` is missing"),
        (text(files=[{"path": "a", "size": -1, "sha256": DIGEST}]), "`size`"),
        (text(files=[{"path": "a", "size": True, "sha256": DIGEST}]), "`size`"),
        (text(files=[{"path": "a", "size": 1, "sha256": DIGEST.upper()}]), "lower-case hex"),
        (text(files=[{"path": "a", "size": 1, "sha256": DIGEST}] * 2), "lists a file twice"),
        (text(files=["a"]), "is not an object"),
        (text(origin="heaven"), "origin is 'heaven'"),
        (text(tree_sha256=DIGEST), "was edited"),
        ('{"schema": 1, "schema": 2}', "has the key 'schema' twice"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "is not an object"),
        ('{"a": NaN}', "NaN"),
        ("{", "is not JSON"),
    ],
)
def test_parse__refuses_with_one_clear_line(content: str, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint) as caught:
        parse(content, "here.json")
    assert str(caught.value).startswith("here.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "", ".", "a//b", "a/", "a\\b", "a\nb", "./a", "\udc80",
     "manifest.json", ".twinspark-parts/x", ".cache/x"],
)  # fmt: skip
def test_path__that_could_leave_the_checkpoint_is_refused(path: str) -> None:
    with pytest.raises(CheckpointError, match="no path of a checkpoint file"):
        parse(text(files=[{"path": path, "size": 1, "sha256": DIGEST}]), "m")


@given(st.text(max_size=20))
def test_path__that_is_accepted_stays_below_the_root(path: str) -> None:
    try:
        manifest.check_path(path, "m")
    except CheckpointError:
        return
    root = Path("/srv/models/x")
    assert (root / path).is_relative_to(root)
    assert ".." not in (root / path).parts


def test_scan__lists_files_and_leaves_out_what_is_ours(verified: Path) -> None:
    (verified / ".cache" / "huggingface").mkdir(parents=True)
    (verified / ".cache" / "huggingface" / "note").write_text("x")
    assert sorted(scan(verified)) == [
        "config.json",
        "encoding/empty.txt",
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "model.safetensors.index.json",
    ]


def test_scan__names_a_dangling_link(model: Path) -> None:
    (model / "broken").symlink_to("nowhere")
    with pytest.raises(CheckpointError, match="broken is neither a file"):
        scan(model)


def test_scan__names_the_link_that_leads_to_itself(model: Path) -> None:
    (model / "encoding" / "loop").symlink_to("loop")
    with pytest.raises(CannotRunError, match="encoding/loop cannot be read: Too many levels"):
        scan(model)


def test_scan__of_nothing_could_not_run(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="does not exist"):
        scan(tmp_path / "missing")
