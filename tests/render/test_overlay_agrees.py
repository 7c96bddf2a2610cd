"""The schema refuses before a node is touched what the overlay would refuse in the engine."""

from __future__ import annotations

import itertools
import typing

import pytest

from env.variants import edited
from twinspark.kernels.dispatch import Mode
from twinspark.patches.config.deepgemm_refusals import complaints
from twinspark.variant import VariantError, loads
from twinspark.variant.schema import Variant


def choices(key):
    return typing.get_args(Variant.model_fields[key].annotation)


BACKENDS = list(
    itertools.product(choices("LINEAR_BACKEND"), choices("MOE_BACKEND"), ("true", "false"))
)


@pytest.mark.parametrize(("linear", "moe", "deep_gemm"), BACKENDS)
def test_backends__that_the_schema_accepts_are_accepted_by_the_overlay(linear, moe, deep_gemm):
    changes = {"LINEAR_BACKEND": linear, "MOE_BACKEND": moe, "VLLM_USE_DEEP_GEMM": deep_gemm}
    found = complaints(
        linear=linear,
        moe=moe,
        use_deep_gemm=deep_gemm == "true",
        block_size=256,
        sm120_deep_gemm=False,
    )
    try:
        loads(edited("flash-tp2", **changes), "x.env")
    except VariantError:
        return
    assert not found


def test_backends__that_are_accepted_are_some():
    accepted = 0
    for linear, moe, deep_gemm in BACKENDS:
        changes = {"LINEAR_BACKEND": linear, "MOE_BACKEND": moe, "VLLM_USE_DEEP_GEMM": deep_gemm}
        try:
            loads(edited("flash-tp2", **changes), "x.env")
        except VariantError:
            continue
        accepted += 1
    assert accepted == 4 * 6  # without auto and deep_gemm, DeepGEMM off


def test_kernels__are_named_as_the_dispatcher_names_them():
    assert set(choices("TWINSPARK_KERNELS")) == {str(mode) for mode in Mode}
