"""Detectors: quiet over healthy text, loud for their own fault, and the rates that docs quote."""

from __future__ import annotations

from collections import Counter

import pytest

from guards.corpus_samples import SPOILED, Sample, samples
from twinspark.guards.detectors import DETECTORS, LATIN, examine

ALL = samples()


def test_corpus__holds_every_kind_of_text() -> None:
    kinds = Counter(sample.name.partition(".")[0] for sample in ALL)
    assert set(kinds) == {
        "prose", "code", "html", "mathematics", "markdown", "chinese", "russian",
    }  # fmt: skip
    assert min(kinds.values()) >= 5


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_detectors__are_quiet_over_healthy_text(sample: Sample) -> None:
    assert examine(sample.text, sample.expected) == []


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_detector__finds_its_own_fault_in_every_sample(name: str) -> None:
    missed = [s.name for s in ALL if not DETECTORS[name](SPOILED[name](s), s.expected)]
    assert missed == []


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_detector__leaves_the_faults_of_others_alone(name: str) -> None:
    for fault in sorted(set(SPOILED) - {name}):
        wrong = [s.name for s in ALL if DETECTORS[name](SPOILED[fault](s), s.expected)]
        assert wrong == [], f"{name} alarms for {fault}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("markup_leak", "Sure.</think> The answer is 4."),
        ("markup_leak", "<|tool_calls_begin|>get_weather"),
        ("markup_leak", '<tool_call>{"name": "x"}</tool_call>'),
        ("hash_burst", "# # # # # # # # # # # # # # # # # # # # # # # #"),
        ("repetition_loop", "ha" * 200),
        ("repetition_loop", "start " + "The same sentence of some length. " * 9),
    ],
)
def test_detector__knows_other_forms(name: str, text: str) -> None:
    assert DETECTORS[name](text, LATIN)


def test_language_mixing__accepts_the_language_that_was_asked_for() -> None:
    text = "Das Wort \u0441\u043b\u043e\u0432\u043e heisst Wort."
    assert examine(text, LATIN)
    assert examine(text, LATIN | {"CYRILLIC"}) == []
