"""Tiles, what they cost, and the choice for a card nobody here has."""

from __future__ import annotations

import json

import pytest

from twinspark.kernels import config
from twinspark.kernels.config import Config, Resources

OPS = (
    "c128a_metadata",
    "fp8_o_proj",
    "hc_prenorm_gemm",
    "mqa_logits",
    "mqa_topk",
    "paged_mqa_logits",
    "zero_rows",
)


def row(config_: Config, **changes: int) -> Resources:
    values = {"registers": 128, "shared": 40_000, "spills": 0, "local": 0} | changes
    return Resources(op="op", config=config_, **values)


def test_fits__to_the_last_byte_of_shared_memory():
    tile = Config(m=2, n=64)
    assert config.fits(row(tile, shared=101_376))
    assert not config.fits(row(tile, shared=101_377))


@pytest.mark.parametrize("fault", [{"spills": 4}, {"local": 8}])
def test_fits__refuses_anything_in_local_memory(fault):
    assert not config.fits(row(Config(m=2, n=64), **fault))


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "resident"),
    [
        (128, 10_000, 4, 16),  # registers: 65536 / (128 * 128) = 4 programs
        (129, 10_000, 4, 12),  # one register more is one unit of 8 more: 3 programs
        (32, 60_000, 4, 4),  # shared memory: one program
        (16, 0, 4, 48),  # warps: 12 programs
    ],
)
def test_resident_warps__is_the_tightest_of_three_limits(registers, shared, warps, resident):
    tile = row(Config(m=1, n=64, warps=warps), registers=registers, shared=shared)
    assert config.resident_warps(tile) == resident


def test_select__takes_the_most_reuse_that_fits():
    small, large, spilling = Config(m=1, n=64), Config(m=2, n=64), Config(m=4, n=64)
    table = [row(small), row(large), row(spilling, spills=8)]
    assert config.select_sm121(table, "op") == large


def test_select__prefers_a_smaller_tile_to_too_few_warps():
    lonely = row(Config(m=4, n=64, warps=4), registers=200, shared=90_000)
    busy = row(Config(m=1, n=64, warps=4))
    assert config.select_sm121([lonely, busy], "op") == busy.config


def test_select__takes_a_preference_only_where_it_fits():
    wanted, other = Config(m=1, n=64), Config(m=2, n=64)
    assert config.select_sm121([row(wanted), row(other)], "op", (wanted,)) == wanted
    assert config.select_sm121([row(wanted, local=8), row(other)], "op", (wanted,)) == other


def test_select__says_what_to_do_when_nothing_fits():
    with pytest.raises(ValueError, match="op fits sm_121: shrink"):
        config.select_sm121([row(Config(m=4, n=64), spills=8)], "op")


def test_select__does_not_depend_on_the_order_of_the_table():
    table = [row(Config(m=m, n=n, stages=s)) for m in (1, 2) for n in (64, 128) for s in (2, 3)]
    chosen = config.select_sm121(table, "op")
    assert config.select_sm121(reversed(table), "op") == chosen


def test_table__survives_being_written_and_read():
    table = (row(Config(m=1, n=64, tma=True, maxnreg=128)), row(Config(m=2, n=64, k=32)))
    text = config.to_json(table)
    assert sorted(config.from_json(text), key=repr) == sorted(table, key=repr)
    assert len(json.loads(text)) == 2


@pytest.mark.parametrize("op", OPS)
def test_committed_table__has_a_configuration_of_each_operation_that_fits(op):
    chosen = config.select_sm121(config.sm121_table(), op)
    fitting = [r for r in config.sm121_table() if r.op == op and r.config == chosen]
    assert [config.fits(r) for r in fitting] == [True]


def test_key__tells_all_configurations_of_the_table_apart():
    keys = [(r.op, r.config.key) for r in config.sm121_table()]
    assert len(set(keys)) == len(keys)
