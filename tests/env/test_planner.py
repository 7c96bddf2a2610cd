from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinspark.variant.planner import GIB, Window, flash_layout

MILLION = 1_048_576


@pytest.mark.parametrize(
    ("in_flight", "gib"), [(2048, 5.07), (4096, 5.93), (8192, 7.63), (16_384, 11.04)]
)
def test_planner__gives_the_known_need_of_one_full_request(in_flight, gib):
    assert round(flash_layout(draft=True).bytes_needed(MILLION, in_flight) / GIB, 2) == gib


@pytest.mark.parametrize(
    ("in_flight", "context", "pages"),
    [(8192, MILLION, 131), (8193, MILLION, 131), (8194, MILLION, 132), (8192, 4096, 65)],
)
def test_window__holds_itself_what_is_in_flight_and_an_uneven_start(in_flight, context, pages):
    assert Window(layers=1, window=128, block=64).pages(in_flight, context) == pages


def test_planner__needs_less_without_the_draft_s_windows():
    with_draft, without = flash_layout(draft=True), flash_layout(draft=False)
    assert without.bytes_needed(MILLION, 8192) < with_draft.bytes_needed(MILLION, 8192)


@given(
    st.booleans(),
    st.integers(256, MILLION),
    st.integers(256, 65_536),
    st.integers(0, 4096),
)
def test_planner__never_needs_less_for_more(draft, context, in_flight, more):
    layout = flash_layout(draft=draft)
    need = layout.bytes_needed(context, in_flight)
    assert layout.bytes_needed(context + more, in_flight) >= need
    assert layout.bytes_needed(context, in_flight + more) >= need


@given(st.integers(GIB // 4, 40 * GIB), st.integers(256, 65_536))
def test_longest_context__fits_the_pool_and_one_block_more_does_not(pool, in_flight):
    layout = flash_layout(draft=True)
    context = layout.longest_context(pool, in_flight)
    if context:
        assert layout.bytes_needed(context, in_flight) <= pool
    if context < MILLION:
        assert layout.bytes_needed(context + 256, in_flight) > pool
