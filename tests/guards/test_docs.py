"""docs/quality-guards.md says what the code and the recorded runs say."""

from __future__ import annotations

from guards.corpus_samples import samples
from guards.matrix_table import DOCUMENT, ELSEWHERE, HERE, proofs, spliced
from twinspark.guards.registry import GUARDS

TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_document__names_every_guard_in_order() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    named = [line.split("|")[1].split()[0] for line in lines if len(line.split("|")) == 8]
    assert [name for name in named if name != "guard"] == [guard.name for guard in GUARDS]


def test_document__holds_the_recorded_matrix() -> None:
    assert spliced(TEXT) == TEXT  # else: python tests/guards/matrix_table.py --write


def test_every_guard__fails_for_its_own_fault_somewhere() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
    assert set(ELSEWHERE) == {guard.name for guard in GUARDS}
    missing = [name for name in ELSEWHERE.values() if f"def {name}(" not in tests]
    assert missing == []
    # the recall model speaks no JSON and does not reason; a release is a matter of folders
    assert {name for name, rows in proofs().items() if not rows} == {
        "identity", "structured", "puzzle",
    }  # fmt: skip


def test_document__names_the_size_of_the_corpus() -> None:
    assert f"{len(samples())} samples" in TEXT
