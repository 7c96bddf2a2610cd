# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import FP8, NAN, TOLERANCE, fp8, poisoned, relative
from twinspark.kernels import paged_mqa_logits
from twinspark.kernels.dispatch import KernelError, Target
from twinspark.kernels.paged_mqa_logits import INTERPRETER, INTERPRETER_SHARED, reference

pytestmark = pytest.mark.vllm
PAGE = dataclasses.replace(INTERPRETER, n=64)
PAGE_TMA = dataclasses.replace(PAGE, tma=True)
CONFIGS = [INTERPRETER, INTERPRETER_SHARED, PAGE, PAGE_TMA]


def pool(blocks: int, stride: int = 64 * 132, used: set[int] | None = None) -> torch.Tensor:
    """A cache whose unused pages, and the gaps between pages, are all NaN bytes."""
    raw = torch.full((blocks, stride), 0xFF, dtype=torch.uint8)
    for block in range(blocks) if used is None else used:
        raw[block, : 64 * 128] = fp8(64 * 128).view(torch.uint8)
        raw[block, 64 * 128 : 64 * 132] = (torch.rand(64) + 0.5).view(torch.uint8)
    return raw.as_strided((blocks, 64, 1, 132), (stride, 132, 132, 1))


def inputs(lens: list[list[int]], share: int = 1, stride: int = 8640) -> tuple[torch.Tensor, ...]:
    """Rows `lens` [B][next_n]; `share` adjacent requests use one block table."""
    torch.manual_seed(len(lens) * 100 + lens[0][0])
    batch, next_n = len(lens), len(lens[0])
    pages = max(-(-max(map(max, lens)) // 64), 1)
    order = torch.randperm(-(-batch // share) * pages)
    table = order.view(-1, pages).repeat_interleave(share, 0)[:batch].int()
    cache = pool(len(order) + 2, stride, set(order.tolist()))
    q = fp8(batch, next_n, 64, 128)
    weights = torch.randn(batch * next_n, 64)
    return q, cache, weights, torch.tensor(lens, dtype=torch.int32), table.contiguous()


def check(args: tuple[torch.Tensor, ...], config=None, keys: int = 256, **options) -> None:
    out = poisoned(args[2].shape[0], keys)
    run, _ = paged_mqa_logits.dispatch(*args, config=config, **options)
    run(*args, keys, out=out)
    want = reference.paged_mqa_logits(*args, keys)
    assert relative(out, want) < TOLERANCE
    assert torch.equal(torch.isnan(out), torch.isinf(want))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.key)
def test_logits__are_the_definition_for_unequal_rows(config):
    check(inputs([[1], [0], [64], [65], [130]]), config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.key)
def test_rows__of_one_request_share_its_pages(config):
    check(inputs([[70], [71], [72], [5], [6], [7]], share=3), config)


def test_rows__that_are_native_to_a_request_follow_its_table():
    check(inputs([[66, 67, 68], [10, 11, 12]]), rows_per_request=3)


def test_hint__changes_no_result():
    args = inputs([[70], [71], [9], [10]])
    for rows in (1, 2, 6):
        check(args, rows_per_request=rows)


def test_batch__of_rows_without_keys_writes_nothing():
    args = inputs([[0], [0]])
    run, _ = paged_mqa_logits.dispatch(*args)
    assert bool(torch.isnan(run(*args, 64, out=poisoned(2, 64))).all())


def test_clean_logits__fill_the_rest_with_minus_infinity():
    args = inputs([[3], [70]])
    run, _ = paged_mqa_logits.dispatch(*args)
    out = run(*args, 128, clean_logits=True, out=poisoned(2, 128))
    assert torch.equal(torch.isneginf(out).sum(1), torch.tensor([125, 58]))


def test_table__entries_past_a_row_are_never_followed():
    args = inputs([[64], [130]])
    args[4][0, 1:] = 2**30
    for config in CONFIGS:
        check(args, config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.key)
@pytest.mark.parametrize("share", [1, 2])
def test_lengths__past_the_columns_are_cut_off(config, share):
    args = inputs([[130], [100]], share=share)
    run, _ = paged_mqa_logits.dispatch(*args, config=config)
    wide = poisoned(2, 160)
    run(*args, 70, out=wide[:, :70])
    assert bool(torch.isnan(wide[:, 70:]).all())
    want = reference.paged_mqa_logits(*args, 70)
    assert not bool(torch.isinf(want).any())
    assert relative(wide[:, :70], want) < TOLERANCE


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.key)
def test_lengths__past_the_table_are_cut_off(config):
    q, cache, weights, lens, table = inputs([[128], [70]])
    wide = torch.full((2, 9), 2**30, dtype=torch.int32)
    wide[:, :2] = table
    lens[0] = 500
    check((q, cache, weights, lens, wide[:, :2]), config, keys=512)


def test_scales__that_are_negative_come_after_the_relu():
    q, cache, weights, lens, table = inputs([[64]])
    page = cache[int(table[0, 0])].view(-1)
    page[64 * 128 :] = (-torch.rand(64) - 0.5).view(torch.uint8)
    check((q, cache, weights.abs(), lens, table), keys=64)


def test_not_a_number__makes_the_logits_that_it_enters_so():
    q, cache, weights, lens, table = inputs([[64], [64]], share=2)
    weights[1, 5] = NAN  # the interpreter takes FP8's NaN for a number
    args = (q, cache, weights, lens, table)
    for config in CONFIGS:
        run, _ = paged_mqa_logits.dispatch(*args, config=config)
        out = run(*args, 64, out=torch.zeros(2, 64))
        assert torch.isnan(out).sum(1).tolist() == [0, 64]


def test_layout__is_values_then_scales_not_132_bytes_a_token():
    args = inputs([[64]])
    page = args[1][int(args[4][0, 0])].reshape(-1)
    first = page[:128].view(FP8).double() * page[64 * 128 : 64 * 128 + 4].view(torch.float32)
    want = torch.relu(args[0][0, 0].double() @ first) @ args[2][0].double()
    run, _ = paged_mqa_logits.dispatch(*args)
    out = run(*args, 64, out=poisoned(1, 64))
    assert abs(float(out[0, 0]) / float(want) - 1) < TOLERANCE


def test_addresses__pass_two_to_the_31st_at_the_packed_cache_stride():
    stride, block = 1_002_240, 2143  # a physical row of the engine's packed cache
    q, small, weights, lens, table = inputs([[40]], stride=8640)
    raw = torch.empty(stride * (block + 1), dtype=torch.uint8)
    cache = raw.as_strided((block + 1, 64, 1, 132), (stride, 132, 132, 1))
    cache[block] = small[int(table[0, 0])]
    assert cache.stride(0) * block > 2**31
    for config in (INTERPRETER, PAGE_TMA):
        check((q, cache, weights, lens, table * 0 + block), config)


def wide_tokens() -> torch.Tensor:
    """Tokens 136 bytes apart: no page of 8448 adjacent bytes."""
    return torch.zeros(4, 64, 1, 136, dtype=torch.uint8)[..., :132]


def test_cache__off_a_16_byte_boundary_goes_without_descriptors():
    q, cache, weights, lens, table = inputs([[70], [3]])
    raw = torch.zeros(cache.shape[0] * 8640 + 16, dtype=torch.uint8)
    start = (4 - raw.data_ptr()) % 16  # 4 B past a boundary
    moved = raw[start:].as_strided(cache.shape, cache.stride(), start)
    moved.copy_(cache)
    assert moved.data_ptr() % 16 == 4
    check((q, moved, weights, lens, table), PAGE_TMA)


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("q must be", lambda a: (a[0][:, :, :32], *a[1:])),
        ("cache must be", lambda a: (a[0], a[1].view(FP8), *a[2:])),
        ("weights must be", lambda a: (*a[:2], a[2][:1], *a[3:])),
        ("context_lens must be", lambda a: (*a[:3], a[3][:, 0], a[4])),
        ("block_table must be", lambda a: (*a[:4], a[4].long())),
        ("8448 adjacent bytes", lambda a: (a[0], wide_tokens(), *a[2:])),
    ],
)
def test_dispatch__refuses_with_the_argument_and_the_shapes(said, change):
    with pytest.raises(KernelError, match=said):
        paged_mqa_logits.dispatch(*change(inputs([[3], [70]])))


def test_choose__pairs_rows_on_sm121_only_where_requests_hold_several():
    alone, _ = paged_mqa_logits.choose(Target(121, 48), 1)
    paired, reason = paged_mqa_logits.choose(Target(121, 48), 6)
    assert (alone.m, paired.m) == (1, 2)
    assert "6 rows a request" in reason


@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(2, 63),
        torch.zeros(1, 64),
        torch.zeros(64, 2).T,
        torch.zeros(2, 64, dtype=torch.bfloat16),
        torch.zeros(2, 64, dtype=torch.int32),
    ],
    ids=["narrow", "short", "by column", "bf16", "i32"],
)
def test_out__that_is_not_as_it_must_be_is_refused(out):
    args = inputs([[3], [60]])
    run, _ = paged_mqa_logits.dispatch(*args)
    with pytest.raises(KernelError, match=r"out must be \[2, 64\] torch.float32.*got out"):
        run(*args, 64, out=out)


def test_columns__below_none_are_refused():
    args = inputs([[3], [60]])
    run, _ = paged_mqa_logits.dispatch(*args)
    with pytest.raises(KernelError, match="-1 columns"):
        run(*args, -1)


def test_dispatch__refuses_queries_without_requests():
    args = inputs([[3], [60]])
    for q in (args[0].view(-1), args[0].view(2, 64, 128)):
        with pytest.raises(KernelError, match=r"q must be of 4 dimensions; got q \("):
            paged_mqa_logits.dispatch(q, *args[1:])


@pytest.mark.parametrize("change", [{"m": 3}, {"n": 8}, {"n": 48}])
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(change):
    config = dataclasses.replace(INTERPRETER, **change)
    with pytest.raises(KernelError, match=f"paged_mqa_logits: {next(iter(change))}="):
        paged_mqa_logits.dispatch(*inputs([[3], [60]]), config=config)
