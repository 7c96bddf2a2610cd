# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import FP8, NAN, TOLERANCE, compiling, fp8, poisoned, relative, spread
from twinspark.kernels import mqa_logits
from twinspark.kernels.dispatch import KernelError, Target
from twinspark.kernels.mqa_logits import INTERPRETER, SM90, reference, splits

pytestmark = pytest.mark.vllm
TMA = dataclasses.replace(INTERPRETER, tma=True)


def inputs(rows: int, keys: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows * 1000 + keys)
    ks = torch.randint(0, max(keys // 2, 1), (rows,), dtype=torch.int32)
    ke = torch.randint(keys // 2, keys + 1, (rows,), dtype=torch.int32)
    scale = torch.rand(keys) + 0.5
    return fp8(rows, 64, 128), fp8(keys, 128), scale, torch.randn(rows, 64), ks, ke


def check(args: tuple[torch.Tensor, ...], config=None) -> torch.Tensor:
    """Right inside the bounds, untouched outside."""
    out = poisoned(args[0].shape[0], args[1].shape[0])
    run, _ = mqa_logits.dispatch(*args, config=config)
    run(*args, out=out)
    want = reference.mqa_logits(*args)
    assert relative(out, want) < TOLERANCE
    assert torch.equal(torch.isnan(out), torch.isinf(want))
    return out


@pytest.mark.parametrize("config", [INTERPRETER, TMA], ids=lambda c: c.key)
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (3, 17), (2, 48), (5, 33)])
def test_logits__are_the_definition_at_odd_sizes(rows, keys, config):
    check(inputs(rows, keys), config)


@pytest.mark.parametrize(("rows", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_logits__of_nothing_are_empty(rows, keys):
    args = inputs(rows, keys)
    run, _ = mqa_logits.dispatch(*args)
    assert run(*args).shape == (rows, keys)


def test_rows__that_see_no_key_are_not_written():
    args = inputs(4, 20)
    args[5][1] = args[4][1]  # ke == ks
    args[5][2] = 0  # ke < ks
    args[4][2] = 9
    out = check(args)
    assert bool(torch.isnan(out[1:3]).all())


def test_bounds__past_the_keys_are_cut_off():
    args = inputs(3, 20)
    args[5][:] = 1000
    run, _ = mqa_logits.dispatch(*args)
    out = poisoned(3, 32)[:, :20]
    run(*args, out=out)
    assert bool(torch.isnan(out.as_strided((3, 32), (32, 1))[:, 20:]).all())
    assert relative(out, reference.mqa_logits(*args)) < TOLERANCE


def test_clean_logits__fill_the_rest_with_minus_infinity():
    args = inputs(3, 40)
    run, _ = mqa_logits.dispatch(*args)
    out = run(*args, clean_logits=True, out=poisoned(3, 40))
    want = reference.mqa_logits(*args)
    assert torch.equal(torch.isneginf(out), torch.isneginf(want))


def test_non_contiguous__queries_keys_and_weights_are_read_where_they_lie():
    q, k, scale, weights, ks, ke = inputs(3, 24)
    wide_q = fp8(6, 64, 128)[::2]
    wide_q.copy_(q)
    wide_k = torch.zeros(24, 192, dtype=torch.uint8).view(FP8)[:, :128]
    wide_k.copy_(k)
    wide_w = torch.zeros(3, 80)[:, :64]
    wide_w.copy_(weights)
    args = (wide_q, wide_k, scale, wide_w, ks, ke)
    assert not any(t.is_contiguous() for t in (wide_q, wide_k, wide_w))
    for config in (INTERPRETER, TMA):
        check(args, config)


def test_extreme_values__stay_exact():
    q, k, scale, weights, ks, ke = inputs(3, 20)
    q[:] = torch.full_like(q.float(), 448.0).to(FP8)
    k[::2] = torch.full((10, 128), -448.0).to(FP8)
    k[1::2] = torch.full((10, 128), 2.0**-9).to(FP8)
    scale[3] = 1e20
    weights[0] = -1e4
    weights[1] = 0.0
    out = check((q, k, scale, weights, ks * 0, ke * 0 + 20))
    assert bool((out[1] == 0).all())  # weight 0
    assert bool((out[:, ::2] == 0).all())  # every product negative: relu


def test_scales__that_are_negative_come_after_the_relu():
    q, k, scale, weights, ks, ke = inputs(3, 20)
    scale[::3] *= -1
    out = check((q, k, scale, weights.abs(), ks * 0, ke * 0 + 20))
    assert bool((out[:, ::3] < 0).all())


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_not_a_number__makes_the_logits_that_it_enters_so(which):
    q, k, scale, weights, ks, ke = args = inputs(3, 20)
    ks[:], ke[:] = 0, 20
    wide = (q.float(), k.float(), scale, weights)[which]
    wide[1] = NAN
    args = (*args[:which], wide.to(args[which].dtype), *args[which + 1 :])
    run, _ = mqa_logits.dispatch(*args)
    out = run(*args, out=torch.zeros(3, 20))
    want = reference.mqa_logits(*args)
    assert int(torch.isnan(want).sum()) == (3 if which in {1, 2} else 20)
    if which > 1:  # the interpreter takes FP8's NaN for a number
        assert torch.equal(torch.isnan(out), torch.isnan(want))
        assert relative(out, want) < TOLERANCE


COMPILED = """
import json, sys
sys.path.insert(0, "engine_overlay/benchmarks")
import sm121
found = []
for op in ("mqa_logits", "paged_mqa_logits"):
    config = next(chosen for name, _, chosen in sm121.choices() if name == op)
    with sm121.compiling(sm121.KERNELS) as compiled:
        sm121.launch(op, config)
    ptx = compiled[-1].asm["ptx"]
    found.append([ptx.count("max.NaN.f32"), ptx.count("max.f32")])
print(json.dumps(found))
"""


def test_not_a_number__passes_the_compiled_relu_too():
    """The interpreter's maximum lets one through whatever the kernel asks for."""
    for through, dropped in compiling(COMPILED):
        assert through > 0
        assert dropped == 0


def test_addresses__pass_two_to_the_31st():
    q, k, scale, weights, ks, ke = inputs(2, 3)
    ks, ke = ks * 0, ke * 0 + 3
    far = (spread(q, 2**31 + 128), spread(k, 2**30 + 64), scale, weights, ks, ke)
    check(far)


def test_splits__fill_the_card_and_never_go_below_eight_steps():
    few = splits(4, 131_072, SM90, 132)
    assert few * 1 > 132  # one block of rows: the keys must fill the card
    assert splits(4, 64 * 7, SM90, 132) == 1
    assert splits(10**6, 131_072, SM90, 132) == 1
    assert all(131_072 // 64 // splits(m, 131_072, SM90, 132) >= 8 for m in (1, 5, 64, 3000))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("q", lambda a: (a[0][:, :32], *a[1:])),
        ("q", lambda a: (a[0].float(), *a[1:])),
        ("k", lambda a: (a[0], a[1][:, :64], *a[2:])),
        ("k_scale", lambda a: (*a[:2], a[2][:-1], *a[3:])),
        ("weights", lambda a: (*a[:3], a[3].double(), *a[4:])),
        ("ks", lambda a: (*a[:4], a[4].long(), a[5])),
        ("ke", lambda a: (*a[:5], a[5][:-1])),
    ],
)
def test_dispatch__refuses_with_the_argument_and_the_shapes(name, change):
    with pytest.raises(KernelError, match=rf"mqa_logits: {name} must be .*; got q \("):
        mqa_logits.dispatch(*change(inputs(3, 20)))


@pytest.mark.parametrize(("capability", "said"), [(90, "measured on an H200"), (121, "rendered")])
def test_choose__says_how_far_the_choice_is_proven(capability, said):
    _, reason = mqa_logits.choose(Target(capability, 48))
    assert said in reason


@pytest.mark.parametrize(
    ("rows", "keys", "count"),
    [(2048, 4096, 1), (1145, 117_135, 3), (512, 262_144, 1), (4, 4096, 4), (1, 64, 1)],
)
def test_splits_sm90__are_the_fewest_that_leave_little_idle(rows, keys, count):
    assert mqa_logits.splits_sm90(rows, keys, 132) == count


def test_dispatch__takes_the_gluon_form_on_sm90_alone(monkeypatch):
    args = inputs(3, 32)
    for capability, form in ((90, "launch_sm90"), (89, "launch"), (121, "launch")):
        monkeypatch.setattr(mqa_logits, "runnable", lambda *_, c=capability: Target(c, 132))
        run, reason = mqa_logits.dispatch(*args)
        assert run.func.__name__ == form
        assert ("Gluon" in reason) is (capability == 90)


def test_dispatch__takes_the_portable_form_for_layouts_without_a_descriptor(monkeypatch):
    monkeypatch.setattr(mqa_logits, "runnable", lambda *_: Target(90, 132))
    args = inputs(3, 32)
    run, _ = mqa_logits.dispatch(fp8(6, 64, 128)[::2], *args[1:])
    assert run.func.__name__ == "launch"


@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(3, 19),
        torch.zeros(2, 20),
        torch.zeros(20, 3).T,
        torch.zeros(3, 20, dtype=torch.bfloat16),
        torch.zeros(3, 20, dtype=torch.int32),
        torch.zeros(60),
    ],
    ids=["narrow", "short", "by column", "bf16", "i32", "flat"],
)
def test_out__that_is_not_as_it_must_be_is_refused(out):
    args = inputs(3, 20)
    run, _ = mqa_logits.dispatch(*args)
    with pytest.raises(KernelError, match=r"mqa_logits: out must be \[3, 20\] torch.float32.*got"):
        run(*args, out=out)


@pytest.mark.parametrize("which", [0, 1])
def test_dispatch__refuses_a_tensor_without_dimensions(which):
    args = list(inputs(3, 20))
    args[which] = args[which].view(-1)[0]
    with pytest.raises(KernelError, match=r"mqa_logits: [qk] must be of [32] dimensions; got q \("):
        mqa_logits.dispatch(*args)


@pytest.mark.parametrize("change", [{"m": 3}, {"n": 8}, {"n": 48}, {"warps": 3}, {"stages": 0}])
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(change):
    with pytest.raises(KernelError, match=f"mqa_logits: {next(iter(change))}="):
        mqa_logits.dispatch(*inputs(3, 20), config=dataclasses.replace(INTERPRETER, **change))
