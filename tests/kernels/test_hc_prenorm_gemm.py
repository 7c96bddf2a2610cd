# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import poisoned, relative, spread
from twinspark.kernels import hc_prenorm_gemm
from twinspark.kernels.dispatch import KernelError, Target
from twinspark.kernels.hc_prenorm_gemm import INTERPRETER, reference

pytestmark = pytest.mark.vllm
TMA = dataclasses.replace(INTERPRETER, tma=True)
TWO_TERMS = 5e-5  # fn as two bfloat16 terms, truncated by the interpreter: 2^-14


def inputs(rows: int, splits: int, depth: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows + depth)
    x = torch.randn(rows, depth).bfloat16()
    return x, torch.randn(24, depth), poisoned(splits, rows, 24), poisoned(splits, rows)


def check(args: tuple[torch.Tensor, ...], config=None) -> None:
    run, _ = hc_prenorm_gemm.dispatch(*args, config=config)
    run(*args)
    want, squares = reference.hc_prenorm_gemm(*args[:2])
    assert relative(args[2].sum(0), want) < TWO_TERMS
    assert relative(args[3].sum(0), squares) < 1e-6


@pytest.mark.parametrize("config", [INTERPRETER, TMA], ids=lambda c: c.key)
@pytest.mark.parametrize(
    ("rows", "splits", "depth"), [(1, 1, 64), (6, 4, 256), (17, 3, 200), (33, 2, 136)]
)
def test_splits__add_up_to_the_definition(rows, splits, depth, config):
    check(inputs(rows, splits, depth), config)


def test_splits__without_any_depth_are_written_as_zero():
    args = inputs(3, 5, 128)  # two steps for five splits
    check(args)
    assert bool((args[2][2:] == 0).all())
    assert bool((args[3][2:] == 0).all())


def test_no_rows__is_nothing_to_do():
    args = inputs(0, 2, 64)
    run, _ = hc_prenorm_gemm.dispatch(*args)
    assert run(*args) is None


def test_precision__is_finer_than_one_tf32_product():
    args = inputs(16, 1, 512)
    run, _ = hc_prenorm_gemm.dispatch(*args)
    run(*args)
    want, _ = reference.hc_prenorm_gemm(*args[:2])
    tf32 = (args[1].view(torch.int32) & ~0x1FFF).view(torch.float32)
    coarse = args[0].double() @ tf32.double().T
    assert relative(args[2][0], want) < relative(coarse, want) / 4


def test_extreme_values__neither_overflow_nor_vanish():
    args = inputs(4, 2, 128)
    args[0][0] = 1e15
    args[0][1] = 1e-15
    args[0][2] = 0.0
    args[1][3] = 1e10
    run, _ = hc_prenorm_gemm.dispatch(*args)
    run(*args)
    want, squares = reference.hc_prenorm_gemm(*args[:2])
    for row in (0, 1, 3):
        assert relative(args[2].sum(0)[row], want[row]) < TWO_TERMS
    assert relative(args[3].sum(0)[1], squares[1]) < 1e-5
    assert bool((args[2].sum(0)[2] == 0).all())


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")  # the interpreter's
def test_infinite_values__show_in_their_own_row_alone():
    """NaN stands for infinity in the product: `fn` of 1 has a second term of 0."""
    args = inputs(4, 2, 128)
    args[0][1, 5] = float("inf")
    args[1][:, 5] = 1.0
    run, _ = hc_prenorm_gemm.dispatch(*args)
    run(*args)
    out, squares = args[2].sum(0), args[3].sum(0)
    assert torch.isfinite(out).all(1).tolist() == [True, False, True, True]
    assert not bool(torch.isfinite(out[1]).any())
    assert torch.isinf(squares).tolist() == [False, True, False, False]


def test_non_contiguous__rows_and_outputs_lie_where_they_lie():
    x, fn, _, _ = inputs(5, 2, 128)
    wide = torch.zeros(5, 200).bfloat16()[:, :128]
    wide.copy_(x)
    out, square = poisoned(2, 9, 40)[:, :5, :24], poisoned(2, 11)[:, :5]
    for config in (INTERPRETER, TMA):
        check((wide, fn, out, square), config)


def test_addresses__pass_two_to_the_31st():
    x, fn, out, square = inputs(2, 1, 64)
    check((spread(x, 2**31 + 64), fn, out, square))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", lambda a: (a[0].float(), *a[1:])),
        ("fn", lambda a: (a[0], a[1][:20], *a[2:])),
        ("fn", lambda a: (a[0], a[1].bfloat16(), *a[2:])),
        ("out", lambda a: (*a[:2], a[2][:1], a[3])),
        ("square", lambda a: (*a[:3], a[3][:, :2])),
    ],
)
def test_dispatch__refuses_with_the_argument_and_the_shapes(name, change):
    with pytest.raises(KernelError, match=rf"hc_prenorm_gemm: ({name}|out) must be .*; got x \("):
        hc_prenorm_gemm.dispatch(*change(inputs(3, 2, 64)))


@pytest.mark.parametrize("which", [0, 2, 3])
def test_dispatch__refuses_a_tensor_of_another_rank(which):
    args = list(inputs(3, 2, 64))
    for other in (args[which][None], args[which].view(-1)[0]):
        args[which] = other
        with pytest.raises(KernelError, match=r"must be of [32] dimensions; got x \("):
            hc_prenorm_gemm.dispatch(*args)


@pytest.mark.parametrize("change", [{"n": 16}, {"n": 64}, {"m": 8}, {"k": 48}])
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(change):
    config = dataclasses.replace(INTERPRETER, **change)
    with pytest.raises(KernelError, match=f"hc_prenorm_gemm: {next(iter(change))}="):
        hc_prenorm_gemm.dispatch(*inputs(3, 2, 64), config=config)


@pytest.mark.parametrize("rows", [1, 16, 17, 128, 129, 8192])
@pytest.mark.parametrize("capability", [90, 121])
def test_choose__has_a_configuration_for_every_number_of_rows(rows, capability):
    config, reason = hc_prenorm_gemm.choose(Target(capability, 48), rows, 4)
    assert config.n == 32
    assert f"sm_{capability}" in reason
