"""Detectors for text that looks like an answer and is not one: leaks, mixtures, bursts, loops.

Each names what it saw, or nothing. Their false-alarm rates over healthy prose, code, HTML,
mathematics, tables, Chinese and Russian are measured by `tests/guards/test_detectors.py`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LATIN: Final = frozenset({"LATIN"})
# DeepSeek's special tokens use the full-width bar and the lower-one-eighth block; leaks appear
# with either bar. Closing tags of reasoning and tool calls never belong into content.
_MARKUP: Final = re.compile(
    r"</?[|\uff5c]/?[\w\u2581]+(?:[ \u2581]\w+)*[|\uff5c]"
    r"|</?(?:think|tool_calls?|function_calls?|invoke)>"
)
_HASHES: Final = re.compile(r"(?:#[ \t]*){8,}")
_SCRIPTS: Final = (
    "LATIN", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "HEBREW", "THAI",
    "DEVANAGARI", "BENGALI", "TAMIL", "GEORGIAN", "ARMENIAN",
)  # fmt: skip
_NEUTRAL: Final = frozenset({"GREEK"})  # mathematics writes it in any language
FOREIGN_LETTERS: Final = 4
FOREIGN_SHARE: Final = 0.004
LOOP_CHARACTERS: Final = 160
_LOOP: Final = re.compile(r"(.{1,240}?)\1{4,}", re.DOTALL)  # five rounds of up to 240 characters
_RULES: Final = frozenset("-=_*~.|+: \t\n#")  # a ruled line or an empty table is no loop


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a detector saw.

    Attributes:
        detector: Its name.
        evidence: The place, shortened.
    """

    detector: str
    evidence: str


def script(letter: str) -> str:
    """The script of a letter by its Unicode name; empty for other characters."""
    if not letter.isalpha():
        return ""
    first = unicodedata.name(letter, "").partition(" ")[0]
    return "LATIN" if first in {"FULLWIDTH", "MATHEMATICAL"} else first


def markup_leak(text: str, _: frozenset[str]) -> str:
    """Tool-call, DSML or reasoning markup in visible content."""
    found = _MARKUP.search(text)
    return found[0] if found else ""


def language_mixing(text: str, expected: frozenset[str]) -> str:
    """Letters of a script that neither the question nor mathematics explains."""
    counts = Counter(filter(None, map(script, text)))
    foreign = {
        name: count
        for name, count in counts.items()
        if name in _SCRIPTS and name not in expected | _NEUTRAL
    }
    total, strange = sum(counts.values()), sum(foreign.values())
    if strange < FOREIGN_LETTERS or strange < FOREIGN_SHARE * total:
        return ""
    return ", ".join(f"{count} {name}" for name, count in sorted(foreign.items()))


def hash_burst(text: str, _: frozenset[str]) -> str:
    """Runs of `#` inside a line; banners of comments, alone on their lines, are no bursts."""
    alone = 0
    for line in text.splitlines():
        found = _HASHES.search(line)
        if not found:
            continue
        rest = (line[: found.start()] + line[found.end() :]).strip(" \t#/*")
        if rest and not line.lstrip().startswith("#"):
            return line.strip()[:60]
        alone += 0 if rest else 1
    hashes, size = text.count("#"), len(text.strip())
    crowded = size >= 40 and hashes > 0.3 * size
    return f"{hashes} of {size} characters" if crowded or alone > 6 else ""


def repetition_loop(text: str, _: frozenset[str]) -> str:
    """A passage that repeats itself, back to back, five times and over 160 characters."""
    for found in _LOOP.finditer(text):
        unit = found[1]
        if len(found[0]) >= LOOP_CHARACTERS and not set(unit) <= _RULES:
            return f"{unit.strip()[:40]!r} {len(found[0]) // len(unit)} times"
    return ""


def broken_bytes(text: str, _: frozenset[str]) -> str:
    """Replacement characters: token bytes that are no UTF-8; one at the very end may be a cut."""
    count = text[:-1].count("\ufffd")
    return f"{count} replacement characters" if count else ""


DETECTORS: Final[dict[str, Callable[[str, frozenset[str]], str]]] = {
    "markup_leak": markup_leak,
    "language_mixing": language_mixing,
    "hash_burst": hash_burst,
    "repetition_loop": repetition_loop,
    "broken_bytes": broken_bytes,
}


def examine(text: str, expected: frozenset[str] = LATIN) -> list[Alarm]:
    """Run all detectors.

    Args:
        text: An answer's visible content.
        expected: Scripts that belong there, by Unicode name (`LATIN`, `CJK`, `CYRILLIC`).
    """
    seen = ((name, detector(text, expected)) for name, detector in DETECTORS.items())
    return [Alarm(name, evidence) for name, evidence in seen if evidence]
