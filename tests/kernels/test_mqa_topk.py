# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import dataclasses
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import FP8, NAN, fp8, spread
from twinspark.kernels import mqa_logits, mqa_topk
from twinspark.kernels.config import Config
from twinspark.kernels.dispatch import KernelError, Target
from twinspark.kernels.mqa_topk import INTERPRETER, reference
from twinspark.kernels.mqa_topk.reference import top_keys

pytestmark = pytest.mark.vllm
TMA = dataclasses.replace(INTERPRETER, tma=True)
FOUR_ROWS = dataclasses.replace(INTERPRETER, m=4, k=64)
INF = float("inf")


def inputs(rows: int, keys: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows * 1000 + keys)
    ks = torch.randint(0, max(keys // 4, 1), (rows,), dtype=torch.int32)
    ke = torch.randint(keys // 2, keys + 1, (rows,), dtype=torch.int32)
    scale = torch.rand(keys) + 0.5
    return fp8(rows, 64, 128), fp8(keys, 128), scale, torch.randn(rows, 64), ks, ke


def prescribed(values: torch.Tensor, *signs: float) -> tuple[torch.Tensor, ...]:
    """Inputs whose logits are the given values, bit by bit, times a row's sign."""
    rows, keys = len(signs), values.numel()
    q, k = torch.zeros(rows, 64, 128), torch.zeros(keys, 128)
    weights = torch.zeros(rows, 64)
    q[:, 0, 0], k[:, 0], weights[:, 0] = 1.0, 1.0, torch.tensor(signs)
    bounds = torch.zeros(rows, dtype=torch.int32), torch.full((rows,), keys, dtype=torch.int32)
    return q.to(FP8), k.to(FP8), values.float().clone(), weights, *bounds


def run(args, topk=8, config=INTERPRETER, shares=1, room=None) -> torch.Tensor:
    out = torch.full((args[0].shape[0], topk), -7, dtype=torch.int32)
    return mqa_topk.launch(
        *args, config=config, processors=4, topk=topk, shares=shares, room=room, out=out
    )


def check(args, topk=8, logits=None, **how) -> torch.Tensor:
    """Distinct keys, all of the row; the smallest chosen is not below the largest left out."""
    out = run(args, topk, **how)
    keys, ks, ke = args[1].shape[0], args[4], args[5]
    if logits is None:
        logits = mqa_logits.launch(*args, config=mqa_logits.INTERPRETER, processors=4)
    for m, row in enumerate(out.tolist()):
        count = max(min(int(ke[m]), keys) - int(ks[m]), 0)
        chosen = [key for key in row if key != -1]
        assert len(set(chosen)) == len(chosen) == min(count, topk)
        assert all(0 <= key < count for key in chosen)
        if count <= topk:
            assert row == [*range(count), *[-1] * (topk - count)]
            continue
        rest = sorted(set(range(count)) - set(chosen))
        mine = logits[m, int(ks[m]) : int(ks[m]) + count]
        assert float(mine[chosen].min()) >= float(mine[rest].max())
    return out


@pytest.mark.parametrize("config", [INTERPRETER, TMA, FOUR_ROWS], ids=lambda c: c.key)
@pytest.mark.parametrize(
    ("rows", "keys", "topk"), [(1, 1, 8), (3, 17, 8), (2, 300, 8), (5, 777, 20), (3, 900, 1)]
)
def test_keys__are_the_largest_logits_at_odd_sizes(rows, keys, topk, config):
    check(inputs(rows, keys), topk, config=config)


@pytest.mark.parametrize("shares", [1, 2, 3, 8])
@pytest.mark.parametrize("room", [64, 256])
def test_splits__are_merged(shares, room):
    check(inputs(3, 1000), 8, shares=shares, room=room)


def test_keys__are_those_of_the_definition_in_float64():
    args = inputs(4, 500)
    out = run(args, 16, shares=2).sort(1).values
    assert torch.equal(out, reference.mqa_topk(*args, 16).sort(1).values)


@pytest.mark.parametrize(("rows", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_keys__of_nothing_are_none(rows, keys):
    out = run(inputs(rows, keys))
    assert out.shape == (rows, 8)
    assert bool((out == -1).all())


def test_rows__that_see_few_keys_get_them_in_order_and_then_minus_one():
    args = inputs(6, 100)
    for m, (first, end) in enumerate([(9, 9), (9, 3), (50, 57), (50, 58), (50, 59), (93, 1000)]):
        args[4][m], args[5][m] = first, end
    out = check(args, 8)
    assert out[2].tolist() == [*range(7), -1]


def test_short_rows__do_not_look_at_their_logits():
    args = prescribed(torch.tensor([NAN, -NAN, -INF, 0.0, INF]), 1.0)
    assert run(args)[0].tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


@pytest.mark.parametrize("order", ["rising", "falling", "even", "hills"])
@pytest.mark.parametrize(("shares", "room"), [(1, 64), (2, 64), (1, 512)])
def test_order__of_the_logits_makes_no_difference(order, shares, room):
    n = torch.arange(700)
    values = {
        "rising": n * 1.0,  # every run passes the filter whole, and the buffer fills at once
        "falling": -n * 1.0,
        "even": n * 0.0 + 3.0,  # nothing tells them apart: ties fill the buffer
        "hills": (n % 50) * (n % 7) * 1.0,
    }[order]
    args = prescribed(values, 1.0, -1.0, 1.0)
    logits = torch.stack([values, -values, values]).float()
    check(args, 8, logits, shares=shares, room=room)


@pytest.mark.parametrize("part", [8, 16])
@pytest.mark.parametrize("order", ["rising", "even", "late"])  # late: better keys behind ties
def test_parts__of_a_run_and_of_the_candidates_are_taken_one_by_one(monkeypatch, order, part):
    monkeypatch.setattr(mqa_topk, "PART", part)
    n = torch.arange(300) * 1.0
    values = {"rising": n, "even": n * 0 + 1, "late": (300 - n) * (n % 60 > 50)}[order]
    args = prescribed(values, 1.0, -1.0, 1.0)
    check(args, 12, torch.stack([values, -values, values]), room=64)
    check(inputs(3, 300), 12, shares=2)


def test_ties__at_the_edge_are_filled_up_and_what_is_above_them_is_kept():
    values = torch.zeros(600)
    values[[3, 100, 599]] = 5.0
    values[[4, 200]] = 7.0
    out = check(prescribed(values, 1.0), 8, values[None])
    assert {3, 4, 100, 200, 599} < set(out[0].tolist())


def test_special_values__have_a_place_in_the_order():
    values = torch.linspace(-1, 1, 400)
    values[350] = NAN
    values.view(torch.int32)[10] = 0x7FFFFFFF  # a card's own NaN: nothing is above it
    values[[20, 30]] = INF
    values[40] = 1e38
    values[50:300] = -INF
    out = run(prescribed(values, 1.0), 6, room=64)
    assert set(out[0].tolist()) == {10, 350, 20, 30, 40, 399}
    bits = torch.tensor([0x7FFFFFFF, 0x7FC00000] * 100, dtype=torch.int32)  # NaN of both kinds
    out = run(prescribed(bits.view(torch.float32), 1.0), 6, room=64)
    assert len(set(out[0].tolist())) == 6


@pytest.mark.parametrize("fill", [-INF, -0.0, NAN, 1e-45])
def test_equal_special_values__are_bounded_like_any(fill):
    values = torch.full((500,), fill)
    values[[123, 321]] = 1.0
    out = run(prescribed(values, 1.0), 6, room=64, shares=2)[0].tolist()
    assert len(set(out)) == 6
    assert all(0 <= key < 500 for key in out)
    if not math.isnan(fill):  # NaN is above 1
        assert {123, 321} < set(out)


def test_zeros__of_both_signs_are_equal():
    values = torch.tensor([-0.0, 0.0, -1.0, 1.0]).repeat(100)
    args = prescribed(values, 1.0)
    check(args, 150, values[None], config=dataclasses.replace(INTERPRETER, k=64), room=256)


def test_out__may_have_rows_apart_and_nothing_beside_them_is_written():
    args = inputs(3, 200)
    wide = torch.full((3, 20), -7, dtype=torch.int32)
    call, _ = mqa_topk.dispatch(*args, 8)
    call(*args, out=wide[:, :8])
    assert bool((wide[:, 8:] == -7).all())
    assert torch.equal(wide[:, :8], run(args))


def test_bounds__past_the_keys_are_cut_off_and_starts_are_taken_off():
    args = inputs(3, 90)
    args[5][:] = 1000
    args[4][:] = torch.tensor([0, 31, 60])
    check(args)


def test_addresses__pass_two_to_the_31st():
    q, k, scale, weights, ks, ke = inputs(2, 40)
    far = (spread(q, 2**31 + 128), spread(k, 2**26 + 64), scale, weights, ks * 0, ke * 0 + 40)
    check(far)


def collected(args, topk, room, shares=1) -> tuple[torch.Tensor, list[list[int]]]:
    found, counts = mqa_topk.collect(*args, topk=topk, config=INTERPRETER, shares=shares, room=room)
    keys = [
        (found[m, s, : counts[m, s]] & 0xFFFFFFFF).tolist()
        for m in range(counts.shape[0])
        for s in range(shares)
    ]
    return counts, keys


def test_candidates__are_few_distinct_and_hold_the_top_after_many_compactions():
    values = torch.arange(2000) * 1.0
    counts, keys = collected(prescribed(values, 1.0), 8, 64)
    assert int(counts.max()) <= mqa_topk.final(8)
    assert len(set(keys[0])) == len(keys[0])
    assert set(range(1992, 2000)) <= set(keys[0])


@pytest.mark.parametrize("value", [3.0, 9.0])
def test_filter__lets_nothing_pass_that_is_not_above_the_bound(value):
    values = torch.cat([torch.full((64,), 9.0), torch.full((900,), value)])
    counts, keys = collected(prescribed(values, 1.0), 8, 64)
    assert max(keys[0]) < 64
    assert int(counts.max()) <= mqa_topk.final(8)


def test_splits__share_the_keys_among_them():
    # 5 tiles each, two and a half runs: the last one's other half is an older run's, the best ones
    n = torch.arange(320) % 80
    _, keys = collected(prescribed(n + 100.0 * ((n >= 48) & (n < 64)), 1.0), 8, 64, shares=4)
    for split, of in enumerate(keys):
        assert set(of) <= set(range(80 * split, 80 * split + 80))
        assert set(of) >= set(range(80 * split + 56, 80 * split + 64))


@pytest.mark.parametrize("room", [32, 63, 100])
def test_room__that_a_run_might_overflow_is_refused(room):
    with pytest.raises(KernelError, match="room must be a power of two from 42 on"):
        run(inputs(2, 50), 8, room=room)


@pytest.mark.parametrize(
    "config", [*mqa_topk.CONFIGS, *mqa_topk.FINALISTS, INTERPRETER], ids=lambda c: c.key
)
@pytest.mark.parametrize("topk", [1, 8, 512, 2048])
def test_capacity__holds_a_run_beside_what_a_compaction_leaves(config, topk):
    room = mqa_topk.capacity(config, topk)
    assert room & (room - 1) == 0
    assert room >= config.k + mqa_topk.most(topk)
    assert room >= mqa_topk.final(topk) >= mqa_topk.most(topk) >= topk


def test_splits__fill_the_card_and_leave_each_some_runs():
    config = Config(m=4, n=64, k=1024)
    assert mqa_topk.splits(2048, 32_768, config, 132) == 1
    assert mqa_topk.splits(512, 262_144, config, 132) == 2
    assert mqa_topk.splits(1145, 117_135, config, 132) == 5
    assert mqa_topk.splits(1, 8 * 1024 * 3, config, 132) == 3
    assert mqa_topk.splits(1, 10**7, config, 132) == mqa_topk.MOST_SPLITS
    assert mqa_topk.splits(1, 100, config, 132) == 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("q", lambda a: (a[0][:, :32], *a[1:])),
        ("k", lambda a: (a[0], a[1][:, :64], *a[2:])),
        ("k_scale", lambda a: (*a[:2], a[2][:-1], *a[3:])),
        ("weights", lambda a: (*a[:3], a[3].double(), *a[4:])),
        ("ke", lambda a: (*a[:5], a[5][:-1])),
    ],
)
def test_dispatch__refuses_with_the_argument_and_the_shapes(name, change):
    with pytest.raises(KernelError, match=rf"mqa_topk: {name} must be .*; got q \("):
        mqa_topk.dispatch(*change(inputs(3, 20)))


@pytest.mark.parametrize("topk", [0, 4096])
def test_dispatch__refuses_more_than_fits_the_registers(topk):
    with pytest.raises(KernelError, match="topk must be 1 to 2048"):
        mqa_topk.dispatch(*inputs(3, 20), topk)


@pytest.mark.parametrize(("capability", "said"), [(90, "fastest"), (0, "interpreter")])
def test_choose__says_why(capability, said):
    assert said in mqa_topk.choose(Target(capability, 48))[1]


def test_reference__counts_nan_as_largest_and_with_its_sign_as_smallest():
    negative = torch.tensor([-4194304], dtype=torch.int32).view(torch.float32)
    logits = torch.cat([negative, torch.tensor([1.0, NAN, 1.0, -INF, 2.0])])[None]
    ks, ke = torch.tensor([0]), torch.tensor([6])
    assert top_keys(logits, ks, ke, 3).tolist() == [[1, 2, 5]]
    assert top_keys(logits, ks, ke, 5).tolist() == [[1, 2, 3, 4, 5]]
    assert top_keys(logits, ks + 1, ke, 7).tolist() == [[0, 1, 2, 3, 4, -1, -1]]


@pytest.mark.parametrize(
    ("config", "said"),
    [(Config(m=3, n=64, k=1024), "m=3"), (Config(m=2, n=64, k=32), "k=32")],
)
def test_dispatch__refuses_a_configuration_that_would_not_be_right(config, said):
    with pytest.raises(KernelError, match=f"mqa_topk: {said} of "):
        mqa_topk.dispatch(*inputs(2, 50), 8, config=config)
