"""The healthy corpus, and ways to spoil a healthy text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinspark.guards.detectors import LATIN

FOLDER = Path(__file__).parent / "corpus"
MARK = "----8<----\n"
EXPECTED = {"chinese": LATIN | {"CJK"}, "russian": LATIN | {"CYRILLIC"}}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    text: str
    expected: frozenset[str]


def samples() -> list[Sample]:
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for index, text in enumerate(path.read_text(encoding="utf-8").split(MARK)):
            expected = EXPECTED.get(path.stem, LATIN)
            found.append(Sample(f"{path.stem}.{index}", text, expected))
    return found


def amid(text: str, inserted: str) -> str:
    """Put something in at the middle, between two words where there are any."""
    at = text.find(" ", len(text) // 2)
    at = len(text) // 2 if at < 0 else at
    return f"{text[:at]} {inserted}{text[at:]}"


def foreign(sample: Sample) -> str:
    """A phrase in a script that does not belong there."""
    return "совсем другое слово" if "CYRILLIC" not in sample.expected else "完全不同的语言"


SPOILED = {
    "markup_leak": lambda s: amid(s.text, "<\uff5cDSML\uff5ctool_calls>"),
    "language_mixing": lambda s: amid(s.text, foreign(s)),
    "hash_burst": lambda s: amid(s.text, "and so ############ ### ########## on"),
    "repetition_loop": lambda s: s.text + " and then the ferry came back again." * 8,
    "broken_bytes": lambda s: amid(s.text, "\ufffd\ufffd"),
}
