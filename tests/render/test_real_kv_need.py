from __future__ import annotations

import itertools

import pytest

from render import scenarios
from twinspark.variant.planner import flash_layout

pytestmark = pytest.mark.vllm

CONTEXTS = (1024, 4096, 100_000, 350_000, 1_013_504, 1_048_576)
IN_FLIGHT = (256, 2048, 4096, 8192, 8193, 8249, 16_384, 65_536)


@pytest.mark.parametrize("draft", [True, False])
def test_planner__needs_what_the_engine_s_own_check_needs(stock_engine, draft):
    cases = [list(case) for case in itertools.product(CONTEXTS, IN_FLIGHT)]
    ours = [flash_layout(draft=draft).bytes_needed(*case) for case in cases]
    assert stock_engine.run(scenarios.kv_needed, draft, cases) == ours


@pytest.mark.parametrize("v2", [True, False])
@pytest.mark.parametrize(("async_scheduling", "steps"), [(True, 2), (False, 1)])
def test_tokens_in_flight__are_two_steps_with_async_scheduling(
    stock_engine, async_scheduling, steps, v2
):
    found = stock_engine.run(scenarios.tokens_in_flight, async_scheduling, v2, 4096)
    assert found == steps * 4096
