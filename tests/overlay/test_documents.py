"""Generated documents, the shape of the tests, and a lint over the overlay's own code."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
import zipfile
from typing import TYPE_CHECKING

import pytest

from overlay.engine import REPOSITORY
from twinspark import documents, expiry, overlay_cli, patches, sources
from twinspark.patches import pins

if TYPE_CHECKING:
    from pathlib import Path

PATCHES = patches.load()
SOURCE = REPOSITORY / "engine_overlay/src/twinspark"


def test_findings__document_is_what_the_records_say():
    written = (REPOSITORY / "docs/findings.md").read_text()
    assert written == documents.findings(), "run `twinspark overlay docs`"


def test_findings__every_row_of_the_findings_is_there():
    text = documents.findings()
    rows = ["01", "02", "03", "04a", "04b", "05", "06", "07", "08", "09", "10", "11", "12", "13"]
    missing = [row for row in rows if not re.search(rf"(`|#){row}(-| )", text)]
    assert missing == []
    assert all(f"w{n}-" in text for n in range(1, 6))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.id)
def test_record__is_complete(patch):
    empty = [field.name for field in dataclasses.fields(patch) if not getattr(patch, field.name)]
    assert empty == []
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in patch.upstream_sha256.values())


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.id)
def test_upstream_notes__name_every_patch(patch):
    assert f"`{patch.id}`" in (REPOSITORY / "docs/upstream.md").read_text()


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.id)
def test_tests__reproduce_fix_and_pin_every_patch(patch):
    folder = REPOSITORY / "tests/overlay" / patch.layer
    holding = [path for path in folder.glob("test_*.py") if f'"{patch.id}"' in path.read_text()]
    assert holding, f"no test file in {folder} names {patch.id}"
    names = " ".join(path.read_text() for path in holding)
    missing = [kind for kind in ("reproduces_on_pristine", "fixed", "upstream_unchanged")
               if f"__{kind}(" not in names]  # fmt: skip
    assert missing == []


def flat_uses(tree):
    """Loops over `attn_groups` whose items are used as groups (#7: it is a list of lists)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.For | ast.comprehension):
            continue
        over = node.iter
        name = over.attr if isinstance(over, ast.Attribute) else getattr(over, "id", "")
        item = getattr(node.target, "id", None)
        if name != "attn_groups" or item is None:
            continue
        body = ast.walk(node) if isinstance(node, ast.For) else ast.walk(tree)
        yield from (
            inner.lineno
            for inner in body
            if isinstance(inner, ast.Attribute) and getattr(inner.value, "id", None) == item
        )


def test_lint__attention_groups_are_nested():
    """#7 was the author's own: this overlay's code must not have it."""
    assert list(flat_uses(ast.parse("for g in self.attn_groups:\n    g.layer_names\n"))) == [2]
    nested = "for groups in self.attn_groups:\n    for g in groups:\n        g.layer_names\n"
    assert list(flat_uses(ast.parse(nested))) == []
    found = {
        str(path): lines
        for path in SOURCE.rglob("*.py")
        if (lines := list(flat_uses(ast.parse(path.read_text()))))
    }
    assert found == {}


def wheel_with(root: Path, module: str, text: str) -> Path:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


def test_expiry__changed_source_is_to_be_read(tmp_path):
    zeroer = next(patch for patch in PATCHES if patch.id == "12-block-zeroer")
    module = sources.split(zeroer.targets[0])[0]
    text = "class KVBlockZeroer:\n    def __init__(self):\n        self.other = 1\n"
    verdict = expiry.judge(zeroer, wheel_with(tmp_path, module, text))
    assert (verdict.word, verdict.fixed) == ("read", False)
    assert zeroer.targets[0] in verdict.changed
    assert zeroer.targets[1] in verdict.gone


def test_expiry__mark_of_the_repair_says_fixed(tmp_path):
    stride = next(patch for patch in PATCHES if patch.id == "13-c128a-stride")
    module = sources.split(stride.targets[0])[0]
    text = "def build_c128a_topk_metadata(buffer):\n    return buffer[:3]\n"
    assert expiry.judge(stride, wheel_with(tmp_path, module, text)).word == "fixed"


@pytest.mark.vllm
def test_expiry__nothing_has_expired_in_the_stock_wheel(wheel):
    assert {verdict.word for verdict in expiry.judge_wheel(wheel)} == {"needed"}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', "\x00"])
def test_show__names_the_folder_whose_reports_cannot_be_read(tmp_path, capsys, text):
    (tmp_path / "worker-1.json").write_text(text)
    assert overlay(["show", tmp_path]) == 2
    printed = capsys.readouterr().err
    assert str(tmp_path) in printed
    assert not re.search(r"Error\(|None", printed)


def overlay(words: list[object]) -> int:
    parser = argparse.ArgumentParser()
    overlay_cli.add_arguments(parser)
    return overlay_cli.run(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize("action", ["expired", "pin", "verify"])
def test_wheel__without_vllm_is_refused(tmp_path, capsys, action):
    before = pins.FILE.read_text()
    (tmp_path / "other").mkdir()
    assert overlay([action, "--wheel", tmp_path]) == 2
    assert "holds no `vllm/`" in capsys.readouterr().out
    assert pins.FILE.read_text() == before


def test_wheel__zip_without_vllm_is_refused(tmp_path, capsys):
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other/__init__.py", "")
    assert overlay(["expired", "--wheel", wheel]) == 2
    assert f"{wheel} holds no `vllm/`" in capsys.readouterr().out


def test_wheel__that_is_no_zip_is_one_sentence(tmp_path, capsys):
    wheel = tmp_path / "broken.whl"
    wheel.write_text("not a zip")
    assert overlay(["expired", "--wheel", wheel]) == 2
    assert capsys.readouterr().err == (
        f"twinspark overlay: {wheel} is not a wheel: it is no zip file\n"
    )


def test_docs__that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    output = tmp_path / "none" / "findings.md"
    assert overlay(["docs", "--output", output]) == 2
    assert capsys.readouterr().err == (
        f"twinspark overlay: {output} cannot be read or written: No such file or directory\n"
    )
