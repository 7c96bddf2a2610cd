"""Findings that no patch serves, and what does: so that the table of findings has every row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A finding that is not patched.

    Attributes:
        id: As the findings are numbered.
        title: One line.
        served_by: What of the project deals with it.
        why: Why it is not a patch.
    """

    id: str
    title: str
    served_by: str
    why: str


UNPATCHED = (
    Row(
        "01",
        "Block-size gate: 'expected num_tokens > 64 (5 vs. 64)'",
        "preflight and `w1-w2-refusals` refuse a block size other than 256; `03-draft-width`",
        "The gate is right: 256 is the value that it needs. The message comes from #3.",
    ),
    Row(
        "04a",
        "Padding every call aborts above 64 tokens",
        "the rule and its sweep in `tests/overlay/metadata/test_03_draft_width.py`",
        "A fork's regression; stock never pads. Widening happens in #3's builder, for "
        "single-segment calls only.",
    ),
    Row(
        "05",
        "KV pool too small for one million tokens",
        "`twinspark variant plan`",
        "Not a defect: stock refuses with a clear error. In-flight tokens are the lever.",
    ),
    Row(
        "07",
        "A nested list of attention groups read as flat",
        "`tests/overlay/test_documents.py`, a lint over this overlay's own code",
        "Not in stock: the author's own code had it.",
    ),
    Row(
        "10",
        "Indexer stall in a torch fallback",
        "`w5-indexer-logits`: one path whatever clean_logits says, none slower behind it",
        "A fork's fallback; stock raises instead.",
    ),
    Row(
        "W6",
        "DSpark draft width has no SM120 bucket",
        "`03-draft-width`",
        "The same as #3.",
    ),
)
