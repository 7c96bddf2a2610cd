"""What a checkpoint is: headers alone never say 0731."""

from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING

import pytest

from checkpoint.builders import INDEX, checkpoint, shard, sparse_model
from twinspark.checkpoint import identity, known, stamp
from twinspark.checkpoint.__main__ import main
from twinspark.checkpoint.errors import CannotRunError
from twinspark.checkpoint.identity import Evidence, inspect, judge_digests, verdict
from twinspark.checkpoint.manifest import of

if TYPE_CHECKING:
    from pathlib import Path


TWINS = Evidence("structure", "", "0731-or-dspark")
PREVIEW = Evidence("structure", "", "preview")
LOOKALIKE = Evidence("digests", "", "lookalike")


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sparse files with the structure of 0731."""
    root = tmp_path_factory.mktemp("sparse")
    assert sparse_model(root) == 166_886_535_336
    return root


def test_structure_of_0731__is_not_enough_to_say_so(twin: Path) -> None:
    found = inspect(twin)
    assert found.problems == ()
    assert (found.tensors, found.drafts, found.shards) == (72_317, 4_705, 48)
    assert (found.kind, found.basis) == ("0731-or-dspark", "structure")


def test_inspect__of_72317_tensors_takes_less_than_two_seconds_of_cpu(twin: Path) -> None:
    begun = time.process_time()
    inspect(twin)
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize(
    ("readme", "kind"),
    [
        ("# DeepSeek-V4-Flash-0731\n", "0731"),
        ("# DeepSeek-V4-Flash-DSpark\n", "dspark"),
        ("# DeepSeek-V4\nWe present a preview version of\n", "contradictory"),
        ("# Something\n", "0731-or-dspark"),
    ],
)
def test_readme__speaks_where_the_structure_fits(tmp_path: Path, readme: str, kind: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    assert verdict([TWINS, *identity._readme(tmp_path)])[0] == kind


@pytest.mark.parametrize(
    ("commit", "kind"),
    [(known.REVISIONS[0], "0731"), (known.REVISIONS[1], "0731"), (known.DSPARK_REVISION, "dspark")],
)
def test_revision__that_the_hub_client_noted_speaks(tmp_path: Path, commit: str, kind: str) -> None:
    notes = tmp_path / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    (notes / f"{known.SHARDS[0].path}.metadata").write_text(f"{commit}\netag\n0\n")
    assert verdict([TWINS, *identity._revision(tmp_path)]) == (kind, "revision")


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        ([TWINS, Evidence("digests", "", "0731"), Evidence("README", "", "dspark")], "0731"),
        ([TWINS, LOOKALIKE], "lookalike"),
        ([TWINS, LOOKALIKE, Evidence("README", "", "0731")], "lookalike"),
        ([TWINS, LOOKALIKE, Evidence("README", "", "dspark")], "dspark"),
        ([PREVIEW, Evidence("README", "", "0731")], "contradictory"),
        ([PREVIEW, Evidence("README", "", "preview")], "preview"),
        ([PREVIEW], "preview"),
        (
            [TWINS, Evidence("README", "", "0731"), Evidence("revision", "", "dspark")],
            "contradictory",
        ),
        ([Evidence("structure", "", "other"), Evidence("README", "", "0731")], "contradictory"),
    ],
)
def test_verdict__goes_by_the_strongest_evidence(evidence: list[Evidence], kind: str) -> None:
    assert verdict(evidence)[0] == kind


def test_no_evidence_but_digests__makes_0731_without_reservation() -> None:
    others = [Evidence("README", "", "0731"), Evidence("revision", "", "0731")]
    assert verdict([TWINS, *others])[1] == "README and revision"
    assert verdict([TWINS, *others, Evidence("digests", "", "0731")])[1] == "digests"


def test_known_digests__are_those_of_48_different_shards() -> None:
    assert len({entry.sha256 for entry in known.SHARDS}) == 48
    assert sum(entry.size for entry in known.SHARDS) == 166_886_535_336
    assert judge_digests(of(known.FILES.values(), origin="hub")).kind == "0731"


def test_digests__count_only_while_the_stamp_holds(
    verified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {item.basis: item.text for item in inspect(verified).evidence}
    assert said["digests"].startswith("verified (first-use)")
    (verified / "config.json").write_text("{}")
    said = {item.basis: item.text for item in inspect(verified).evidence}
    assert said["digests"].startswith("not verified here")
    monkeypatch.setattr(stamp, "check", lambda _root: None)
    assert inspect(verified).evidence[1].text.startswith("verified")


def test_layered_file__is_refused(model: Path) -> None:
    shard(model / "dspark.safetensors", {"mtp.9.weight": ("U8", [1], b"x")})
    assert any("layer nothing" in problem for problem in inspect(model).problems)


def test_index_and_headers__must_agree(tmp_path: Path) -> None:
    root = checkpoint(tmp_path / "m")
    document = json.loads((root / INDEX).read_text())
    first = min(document["weight_map"])
    document["weight_map"][first] = "model-00003-of-00003.safetensors"
    (root / INDEX).write_text(json.dumps(document))
    assert any(
        f"1 tensors are not where it says, such as {first!r}" in p for p in inspect(root).problems
    )
    document["weight_map"][first] = "model-00004-of-00003.safetensors"
    (root / INDEX).write_text(json.dumps(document))
    assert any(
        "'model-00004-of-00003.safetensors', which is missing" in p for p in inspect(root).problems
    )
    (root / INDEX).unlink()
    assert any("is missing: the shards" in problem for problem in inspect(root).problems)


def test_names_in_the_files__do_not_reach_the_terminal_as_they_are(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "foo\n\x1b[31mbar"
    (model / INDEX).write_text(json.dumps({"weight_map": {"x": hostile}}))
    (model / "config.json").write_text(json.dumps({"architectures": [hostile]}))
    monkeypatch.setattr("sys.argv", ["", "inspect", str(model)])
    assert main() == 1
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert f"names {hostile!r}, which is missing\n" in said.err
    assert f"; {hostile!r}\n" in said.out


def test_directory__that_the_terminal_cannot_print_is_inspected(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, "ascii", write_through=True))
    monkeypatch.setattr("sys.argv", ["", "inspect", str(model.rename(model.with_name("ü")))])
    assert main() == 0
    assert b"/\\xfc: other, by structure" in printed.getvalue()


def test_tensor_in_two_shards__is_named(tmp_path: Path) -> None:
    root = checkpoint(tmp_path / "m")
    shard(root / "model-00002-of-00003.safetensors", {"layers.1.0.weight": ("U8", [1], b"x")})
    assert any("a tensor lies in two shards" in problem for problem in inspect(root).problems)


def test_hostile_config__is_a_problem_and_no_crash(model: Path) -> None:
    (model / "config.json").write_text("{")
    assert any("config.json: is not JSON" in problem for problem in inspect(model).problems)


def test_directory_without_shards__could_not_be_inspected(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="holds no safetensors file"):
        inspect(tmp_path)
