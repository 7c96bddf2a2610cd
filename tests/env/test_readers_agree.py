from __future__ import annotations

import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env import corpus, readers
from twinspark.variant import VariantError
from twinspark.variant.dotenv import parse, quote
from twinspark.variant.schema import Variant

names = st.one_of(
    st.sampled_from(sorted(Variant.model_fields)),
    st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True),
)
bare = st.text(string.ascii_letters + string.digits + "_./:,@%+=-", max_size=30)
quoted = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="'$\\"), max_size=30
).map(lambda value: f"'{value}'")
anything = st.text(st.characters(codec="utf-8"), max_size=40)
comments = st.text(st.characters(codec="utf-8"), max_size=30).map(lambda text: f"#{text}")
assignments = st.tuples(names, st.one_of(bare, quoted, anything)).map("=".join)
files = st.lists(
    st.one_of(assignments, comments, st.sampled_from(["", " ", "\t"]), anything), max_size=8
).map("\n".join)
valid = st.lists(
    st.one_of(st.tuples(names, st.one_of(bare, quoted)).map("=".join), comments), max_size=12
).map("\n".join)

many = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,  # the number of accepted files below is then the same on every machine
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)


def agree(text, path):
    """Ours, bash's and python-dotenv's reading of one text that we accept."""
    said = readers.ours(text)
    path.write_bytes(text.encode())
    assert readers.bash(path) == said
    assert readers.python_dotenv(text) == said


@pytest.mark.parametrize("strategy", [valid, files], ids=["near the grammar", "anything"])
def test_readers__agree_on_every_file_that_ours_accepts(strategy, tmp_path):
    accepted = 0

    @many
    @given(strategy)
    def each(text):
        nonlocal accepted
        try:
            parse(text, "file.env")
        except VariantError:
            return
        accepted += 1
        agree(text, tmp_path / "file.env")

    each()
    assert accepted > 40, "too few files were accepted to mean anything"


@many
@given(anything)
def test_quote__writes_what_every_reader_reads_back_or_refuses(tmp_path, value):
    try:
        line = f"KEY={quote(value)}"
    except ValueError:
        return
    assert readers.ours(line) == {"KEY": value}
    agree(line, tmp_path / "file.env")


def test_corpus__is_read_alike_and_says_what_it_claims(tmp_path):
    for text, pairs in corpus.generate(30):
        assert readers.ours(text) == pairs
        agree(text, tmp_path / "file.env")
