"""#12: the block zeroer wipes the next block."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "12-block-zeroer"


def scenario_zero_one_block():
    """Zero block 2 of 5; the segment table says what the last block would do."""
    from overlay.deepseek import Cache, specs

    cache = Cache(specs(), blocks=5)
    zeroer = cache.zeroer()
    stride = cache.backing.shape[1]
    past_the_end = 0
    if zeroer._meta is not None:  # stock: (address, int32 per page) of each segment
        end = cache.backing.data_ptr() + cache.backing.numel()
        addresses, pages = (column.tolist() for column in zeroer._meta[:2])
        past_the_end = max(a + 5 * 4 * p - end for a, p in zip(addresses, pages, strict=True))
    return {"stride": stride, "cleared": cache.cleared([2]), "past_the_end": past_the_end}


# DeepSeek-V4-Flash: 43 layers, the first two without compression
FULL = (0, 0, *(4, 128) * 20, 4)


def scenario_full_size():
    from overlay.deepseek import Cache, specs

    cache = Cache(specs(FULL), blocks=3)
    return {"stride": cache.backing.shape[1], "cleared": cache.cleared([0])}


def scenario_zero_last_and_repeated():
    from overlay.deepseek import Cache, specs

    cache = Cache(specs(), blocks=5)
    return {"stride": cache.backing.shape[1], "cleared": cache.cleared([4, 1, 4, 4])}


def scenario_out_of_range():
    from overlay.deepseek import Cache, specs

    cache = Cache(specs(), blocks=3)
    cache.backing.fill_(1)
    zeroer = cache.zeroer()
    for wrong in (3, -1):
        try:
            zeroer.zero_block_ids([1, wrong])
        except IndexError:
            continue
        return "accepted"
    return int(cache.backing.count_nonzero()) == cache.backing.numel()


def scenario_plain_layout():
    """Two layers with a tensor of their own: what does the stock segment table hold?"""
    from types import SimpleNamespace

    import torch
    from vllm.v1.worker.utils import AttentionGroup, KVBlockZeroer

    from overlay.deepseek import backend_of, specs

    layers = {k: v for k, v in specs((4, 4)).items() if k.endswith("mla")}
    context = {k: SimpleNamespace(kv_cache=torch.ones(4, 64, 584, dtype=torch.uint8))
               for k in layers}  # fmt: skip
    groups = [AttentionGroup(backend_of(k), [k], v, 0) for k, v in layers.items()]
    zeroer = KVBlockZeroer(torch.device("cpu"), groups, [256], "fp8_ds_mla", context)
    zeroer.zero_block_ids([1])
    return [[int(page.sum()) for page in item.kv_cache] for item in context.values()]


def scenario_property(examples):
    """Random layer stacks, pool sizes and id lists: cleared bytes are the asked rows exactly."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    from overlay.deepseek import Cache, specs

    # A net without a compressed layer is not packed, so each has at least one of both.
    stacks = st.lists(st.sampled_from([0, 4, 128]), max_size=4).map(lambda r: (4, 128, *r))

    @settings(max_examples=examples, deadline=None, derandomize=True,
              phases=[Phase.generate],  # shrinking would run the stock kernel for minutes

              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(stacks, st.integers(2, 7), st.data())
    def cleared_rows(ratios, blocks, data):
        ids = data.draw(st.lists(st.integers(0, blocks - 1), min_size=1, max_size=6))
        cache = Cache(specs(ratios), blocks)
        row = cache.backing.shape[1]
        assert cache.cleared(ids) == [row if block in ids else 0 for block in range(blocks)]

    cleared_rows()
    return "held"


def test_zeroer__reproduces_on_pristine(pristine):
    seen = pristine.run(scenario_zero_one_block)
    assert seen["cleared"][2] == seen["stride"]
    assert seen["cleared"][3] > 0.5 * seen["stride"], "the neighbour is wiped"
    assert seen["cleared"][:2] == [0, 0]
    assert seen["past_the_end"] > 0, "the last block writes past the allocation"


def test_zeroer__fixed(overlaid):
    seen = overlaid.run(scenario_zero_one_block)
    assert seen["cleared"] == [0, 0, seen["stride"], 0, 0]
    assert seen["past_the_end"] <= 0


def test_zeroer__last_block_and_repeated_ids(overlaid):
    seen = overlaid.run(scenario_zero_last_and_repeated)
    assert seen["cleared"] == [0, seen["stride"], 0, 0, seen["stride"]]


def test_zeroer__refuses_ids_outside_before_writing(overlaid):
    assert overlaid.run(scenario_out_of_range) is True


def test_zeroer__leaves_plain_layouts_alone(pristine, overlaid):
    stock = pristine.run(scenario_plain_layout)
    assert overlaid.run(scenario_plain_layout) == stock
    assert [page == 0 for page in stock[0]] == [False, True, False, False]


def test_zeroer__property_random_layouts(overlaid):
    assert overlaid.run(scenario_property, 40, timeout=200) == "held"


def test_zeroer__full_size_fixed(overlaid):
    seen = overlaid.run(scenario_full_size)
    assert seen == {"stride": 1_002_240, "cleared": [1_002_240, 0, 0]}


@pytest.mark.slow
def test_zeroer__full_size_reproduces_on_pristine(pristine):
    """17 minutes in the interpreter: stock clears the row once for each of its layers."""
    seen = pristine.run(scenario_full_size, timeout=3600)
    assert seen["cleared"] == [1_002_240, 993_600, 0]


def test_zeroer__upstream_unchanged():
    unchanged(PATCH)
