"""The prompts with exactly known answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinspark.guards import recall


def test_vocabulary__has_one_distinct_word_per_id() -> None:
    words = recall.vocabulary()
    assert len(words) == len(set(words)) == recall.VOCABULARY == 5120
    assert (words[recall.K0], words[recall.V0], words[recall.W0]) == ("k0", "v0", "w0")
    assert (words[recall.Q0], words[-1]) == ("q0", "q1023")
    assert words[recall.CODES - 1] == f"w{recall.FILLER - 1}"


@pytest.mark.parametrize("token", [-1, recall.VOCABULARY])
def test_word__refuses_an_id_outside_the_vocabulary(token: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        recall.word(token)


def test_text__leaves_out_bos_and_insists_on_it() -> None:
    assert recall.text([recall.BOS, recall.K0, recall.EQ]) == "k0 ="
    with pytest.raises(ValueError, match="<bos>"):
        recall.text([recall.K0])


@given(
    length=st.integers(200, 3000),
    needles=st.integers(1, 20),
    seed=st.integers(0, 10**6),
    style=st.sampled_from(["kv", "eq"]),
    value_length=st.integers(1, 3),
)
def test_haystack__holds_every_needle_once(
    length: int, needles: int, seed: int, style: recall.Style, value_length: int
) -> None:
    document = recall.haystack(length, needles, seed, style, value_length)
    assert len(document.ids) == length
    assert document.ids[0] == recall.BOS
    assert len(document.needles) == needles
    values = [value for needle in document.needles for value in needle.values]
    assert len(values) == len(set(values))
    for needle in document.needles:
        assert document.ids.count(needle.key) == 1
        after = document.ids[needle.position + len(needle.question(style)) :]
        words = [recall.word(token) for token in after[: len(needle.answer(style))]]
        assert words == needle.answer(style)


def test_haystack__refuses_needles_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        recall.haystack(40, 30, 1)


@given(blocks=st.integers(1, 64), size=st.sampled_from([3, 16, 32, 128]), seed=st.integers(0, 999))
def test_block_context__puts_each_pair_inside_its_own_block(
    blocks: int, size: int, seed: int
) -> None:
    document = recall.block_context(blocks, size, seed)
    assert len(document.ids) == blocks * size
    for index, needle in enumerate(document.needles):
        assert needle.position // size == (needle.position + 1) // size == index
        assert needle.position >= 1  # position 0 is <bos>
        assert document.ids[needle.position] == needle.key
        assert document.ids[needle.position + 1] == needle.values[0]


def test_prompts__are_the_same_for_the_same_seed() -> None:
    assert recall.haystack(300, 5, 7) == recall.haystack(300, 5, 7)
    assert recall.block_context(4, 32, 7) != recall.block_context(4, 32, 8)


def test_second_name__maps_a_key_to_its_q_token() -> None:
    assert recall.word(recall.second_name(recall.K0 + 17)) == "q17"
