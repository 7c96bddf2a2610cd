# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import BF16_TOLERANCE, FP8, fp8, poisoned, relative, spread
from twinspark.kernels import fp8_o_proj
from twinspark.kernels.dispatch import KernelError, Target
from twinspark.kernels.fp8_o_proj import INTERPRETER, INTERPRETER_FEW, reference

pytestmark = pytest.mark.vllm
TMA = dataclasses.replace(INTERPRETER, tma=True)


def inputs(
    tokens: int, groups: int = 2, ranks: int = 128, depth: int = 256
) -> tuple[torch.Tensor, ...]:
    """As the engine's quantizer leaves them: x is a transposed [G, T, K], scales run by token."""
    torch.manual_seed(tokens)
    x = fp8(groups, tokens, depth).transpose(0, 1)
    scales = torch.exp2(torch.randint(-3, 4, (groups, depth // 128, tokens + 3)).float())
    x_scale = scales.permute(2, 0, 1)[:tokens]
    w_scale = torch.rand(groups, ranks // 128, depth // 128) + 0.5
    out = poisoned(tokens, groups, ranks, dtype=torch.bfloat16)
    return x, x_scale, fp8(groups, ranks, depth), w_scale, out


def check(args: tuple[torch.Tensor, ...], config=None) -> None:
    run, _ = fp8_o_proj.dispatch(*args, config=config)
    run(*args)
    assert relative(args[4], reference.fp8_o_proj(*args[:4])) < BF16_TOLERANCE


@pytest.mark.parametrize("config", [INTERPRETER_FEW, INTERPRETER, TMA], ids=lambda c: c.key)
@pytest.mark.parametrize("tokens", [1, 6, 19, 65])
def test_product__is_the_definition_at_odd_numbers_of_tokens(tokens, config):
    check(inputs(tokens), config)


def test_product__takes_several_blocks_of_ranks_and_depth():
    check(inputs(5, groups=3, ranks=256, depth=640))
    check(inputs(5, groups=1, ranks=384, depth=128))


def test_no_tokens__is_nothing_to_do():
    args = inputs(0)
    run, _ = fp8_o_proj.dispatch(*args)
    assert run(*args).shape == (0, 2, 128)


@pytest.mark.parametrize("config", [INTERPRETER_FEW, INTERPRETER], ids=lambda c: c.key)
def test_scales__act_on_their_own_block_alone(config):
    """Every block of depth and of ranks gets a scale that no other has, over 30 powers of two."""
    x, x_scale, weight, w_scale, out = inputs(3, groups=2, ranks=256, depth=384)
    w_scale = torch.exp2(torch.arange(w_scale.numel()).float() - 6).view_as(w_scale)
    x_scale = torch.exp2(torch.arange(x_scale.numel()).float() - 9).view(3, 2, 3)
    run, _ = fp8_o_proj.dispatch(x, x_scale, weight, w_scale, out, config=config)
    run(x, x_scale, weight, w_scale, out)
    want = reference.fp8_o_proj(x, x_scale, weight, w_scale)
    for g in range(2):
        for half in (slice(0, 128), slice(128, 256)):
            assert relative(out[:, g, half], want[:, g, half]) < BF16_TOLERANCE


def test_extreme_values__stay_finite():
    args = inputs(4)
    args[0][0] = torch.full((2, 256), 448.0).to(FP8)
    args[2][0] = torch.full((128, 256), -448.0).to(FP8)
    args[0][1] = torch.zeros(2, 256).to(FP8)
    check(args)
    assert bool((args[4][1] == 0).all())


@pytest.mark.parametrize("config", [INTERPRETER_FEW, TMA], ids=lambda c: c.key)
def test_non_contiguous__operands_lie_where_they_lie(config):
    x, x_scale, weight, w_scale, _ = inputs(5)
    plain = x.contiguous()  # [T, G, K] packed, unlike the engine's
    wide = torch.zeros(2, 128, 320, dtype=torch.uint8).view(FP8)[:, :, :256]
    wide.copy_(weight)
    out = poisoned(5, 2, 200, dtype=torch.bfloat16)[:, :, :128]
    check((plain, x_scale, wide, w_scale, out), config)


def test_addresses__pass_two_to_the_31st():
    x, x_scale, weight, w_scale, out = inputs(3)
    check((x, x_scale, spread(weight, 2**31 + 256), w_scale, out))
    check((spread(x.contiguous(), 2**30 + 512), x_scale, weight, w_scale, out))


@pytest.mark.parametrize("config", [INTERPRETER_FEW, INTERPRETER], ids=lambda c: c.key)
@pytest.mark.parametrize("which", [1, 3])
def test_addresses__of_scales_pass_two_to_the_31st_along_the_depth(which, config):
    args = list(inputs(2, groups=1, depth=512))
    args[which] = spread(args[which].contiguous(), 2**30, dim=2)
    check(tuple(args), config)


def test_grouped__views_the_weight_as_the_loader_leaves_it():
    _, _, weight, w_scale, _ = inputs(1, ranks=256)
    flat = (weight.reshape(-1, 256), w_scale.reshape(-1, 2))
    views = fp8_o_proj.grouped(*flat, 2)
    assert torch.equal(views[0].view(torch.uint8), weight.view(torch.uint8))
    assert torch.equal(views[1], w_scale)
    assert views[0].data_ptr() == flat[0].data_ptr()
    assert fp8_o_proj.grouped(weight, w_scale, 2) == (weight, w_scale)


def test_grouped__refuses_rows_that_do_not_divide():
    with pytest.raises(KernelError, match=r"3 groups do not divide weight \(256, 256\)"):
        fp8_o_proj.grouped(fp8(256, 256), torch.ones(2, 2), 3)


@pytest.mark.parametrize("groups", [0, -2])
def test_grouped__refuses_no_groups(groups):
    with pytest.raises(KernelError, match=rf"{groups} groups do not divide weight \(256, 256\)"):
        fp8_o_proj.grouped(fp8(256, 256), torch.ones(2, 2), groups)


def test_grouped__refuses_what_is_no_matrix():
    with pytest.raises(KernelError, match=r"weight must be of 2 dimensions; got weight \(256,\)"):
        fp8_o_proj.grouped(fp8(256), torch.ones(2, 2), 2)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", lambda a: (a[0][:, 0], *a[1:])),
        ("weight", lambda a: (*a[:2], a[2][0, 0], *a[3:])),
    ],
)
def test_dispatch__refuses_a_tensor_of_another_rank(name, change):
    with pytest.raises(KernelError, match=rf"{name} must be of 3 dimensions; got x \("):
        fp8_o_proj.dispatch(*change(inputs(3)))


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("k", dataclasses.replace(INTERPRETER, k=256)),
        ("n", dataclasses.replace(INTERPRETER, n=256)),
        ("m", dataclasses.replace(INTERPRETER, m=96)),
        ("k", dataclasses.replace(INTERPRETER_FEW, k=64)),
        ("n", dataclasses.replace(INTERPRETER_FEW, n=256)),
        ("m", dataclasses.replace(INTERPRETER_FEW, m=8)),
    ],
)
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(field, config):
    with pytest.raises(KernelError, match=f"fp8_o_proj: {field}="):
        fp8_o_proj.dispatch(*inputs(3), config=config)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", lambda a: (a[0][:, :, :200], *a[1:])),
        ("x_scale", lambda a: (a[0], a[1].int(), *a[2:])),
        ("weight", lambda a: (*a[:2], a[2][:, :100], *a[3:])),
        ("weight_scale", lambda a: (*a[:3], a[3][:, :, :1], a[4])),
        ("out", lambda a: (*a[:4], a[4].float())),
    ],
)
def test_dispatch__refuses_with_the_argument_and_the_shapes(name, change):
    with pytest.raises(KernelError, match=rf"fp8_o_proj: {name} must be .*; got x \("):
        fp8_o_proj.dispatch(*change(inputs(3)))


@pytest.mark.parametrize("tokens", [1, 16, 17, 512, 513, 8192])
@pytest.mark.parametrize("capability", [90, 121])
def test_choose__has_a_configuration_for_every_number_of_tokens(tokens, capability):
    config, reason = fp8_o_proj.choose(Target(capability, 48), tokens)
    assert (config.m < 64) is (tokens <= 16)
    assert f"sm_{capability}" in reason
