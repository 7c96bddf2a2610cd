# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from twinspark.kernels import zero_rows
from twinspark.kernels.config import Config
from twinspark.kernels.dispatch import KernelError
from twinspark.kernels.zero_rows.reference import zero_rows as reference

pytestmark = pytest.mark.vllm


def cache(blocks: int, size: int) -> torch.Tensor:
    torch.manual_seed(size)
    return torch.randint(1, 256, (blocks, size), dtype=torch.uint8)


def ids(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize("size", [4, 12, 4096, 4100, 20_000])
@pytest.mark.parametrize("which", [(0,), (6,), (0, 6, 3), (2, 2)])
def test_rows__are_zeroed_and_no_other_byte(size, which):
    have = cache(7, size)
    want = reference(have, ids(*which))
    run, _ = zero_rows.dispatch(have, ids(*which))
    run(have, ids(*which))
    assert torch.equal(have, want)


def test_no_ids__touch_nothing():
    have = cache(3, 64)
    before = have.clone()
    run, _ = zero_rows.dispatch(have, ids())
    run(have, ids())
    assert torch.equal(have, before)


def test_rows__inside_wider_ones_leave_the_gap_alone():
    wide = cache(5, 4160)
    have, before = wide[:, :4096], wide.clone()
    run, _ = zero_rows.dispatch(have, ids(1, 4))
    run(have, ids(1, 4))
    before[[1, 4], :4096] = 0
    assert torch.equal(wide, before)


def test_last_row__does_not_run_past_the_allocation():
    """The stock zeroer writes 993,600 bytes past the last row."""
    raw = torch.full((4 * 1000 + 512,), 7, dtype=torch.uint8)
    have = raw[:4000].view(4, 1000)
    run, _ = zero_rows.dispatch(have, ids(3))
    run(have, ids(3))
    assert bool((raw[4000:] == 7).all())
    assert bool((raw[3000:4000] == 0).all())


def test_addresses__pass_two_to_the_31st_at_the_packed_cache_row():
    row, block = 1_002_240, 2143
    raw = torch.empty(block + 1, row, dtype=torch.uint8)
    raw[block] = 1
    run, _ = zero_rows.dispatch(raw, ids(block))
    run(raw, ids(block))
    assert row * block > 2**31
    assert bool((raw[block] == 0).all())


@pytest.mark.parametrize(
    ("said", "table", "which"),
    [
        ("cache must be", torch.zeros(4, 6, dtype=torch.uint8), ids(0)),
        ("cache must be", torch.zeros(4, 8), ids(0)),
        ("cache must be", torch.zeros(8, 4, dtype=torch.uint8).T, ids(0)),
        ("ids must be", torch.zeros(4, 8, dtype=torch.uint8), ids(0).int()),
        ("no block for ids", torch.zeros(0, 8, dtype=torch.uint8), ids(0)),
        ("at most 65,535", torch.zeros(4, 8, dtype=torch.uint8), ids(0).repeat(65_536)),
    ],
)
def test_dispatch__refuses_with_the_shapes(said, table, which):
    with pytest.raises(KernelError, match=rf"zero_rows: {said}.*got .*\("):
        zero_rows.dispatch(table, which)


def test_no_blocks__and_no_ids_is_nothing_to_do():
    run, _ = zero_rows.dispatch(cache(0, 8), ids())
    run(cache(0, 8), ids())


@pytest.mark.parametrize("config", [Config(m=1, n=1000), Config(m=2, n=1024)])
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(config):
    with pytest.raises(KernelError, match=r"zero_rows: [mn]="):
        zero_rows.dispatch(cache(3, 8), ids(0), config=config)
