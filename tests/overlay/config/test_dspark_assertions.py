"""DSpark: a wrong draft shows only as low acceptance; the assertions say what is wrong."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import dataclasses

import pytest

from overlay.engine import unchanged
from twinspark.patches.config.dspark_assertions import Draft, complaints

PATCH = "dspark-assertions"
RIGHT = Draft(
    sample_from_anchor=True, query_tokens=5, draft_tokens=5, block=5, stages=3,
    target_layers=(40, 41, 42), projected=3, markov_rank=256, final_norm=True, hc_fold=True,
    non_causal=True, target_depth=43,
)  # fmt: skip


def scenario_load(anchor, causal):
    """The real `load_draft_model` over a stand-in for the loaded model."""
    from types import SimpleNamespace

    import torch
    from vllm.v1.worker.gpu.spec_decode.dspark import speculator as module

    from twinspark import report

    inner = SimpleNamespace(
        layers=[0, 1, 2], norm=object(), hc_head_fn=object(),
        main_proj=SimpleNamespace(input_size=3 * 64),
        markov_head=SimpleNamespace(markov_w1=SimpleNamespace(weight=torch.zeros(9, 256))),
    )  # fmt: skip
    module.load_dspark_model = lambda *_: SimpleNamespace(model=inner, draft_id_to_target_id=None)
    speculator = module.DSparkSpeculator.__new__(module.DSparkSpeculator)
    speculator.vllm_config = speculator.draft_logits = None
    speculator.sample_from_anchor = anchor
    speculator.num_speculative_steps = 5
    speculator.num_query_per_req = 5 if anchor else 6
    speculator.requires_non_causal = not causal
    speculator.draft_model_config = SimpleNamespace(
        hf_config=SimpleNamespace(
            dspark_block_size=5, dspark_target_layer_ids=[40, 41, 42], hidden_size=64,
            num_hidden_layers=43,
        )
    )  # fmt: skip
    try:
        speculator.load_draft_model(None, set())
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return report.current().as_dict()["facts"].get("dspark", {}).get("markov_rank", "loaded")


@pytest.mark.vllm
def test_draft__reproduces_on_pristine(pristine):
    assert pristine.run(scenario_load, False, True) == "loaded"


@pytest.mark.vllm
def test_draft__fixed(overlaid):
    said = overlaid.run(scenario_load, False, True)
    assert said.startswith("DSparkError: DSpark draft: sample_from_anchor is off")
    assert "6 query tokens for 5 drafts" in said
    assert "the draft block is causal" in said
    assert overlaid.run(scenario_load, True, False) == 256


@pytest.mark.vllm
def test_draft__upstream_unchanged():
    unchanged(PATCH)


def test_draft__right_one_passes():
    assert complaints(RIGHT) == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("sample_from_anchor", False, "one slot late"),
        ("query_tokens", 6, "6 query tokens"),
        ("draft_tokens", 7, "num_speculative_tokens 7 is not"),
        ("stages", 1, "1 draft stages"),
        ("target_layers", (39, 40, 41), "trained on (40, 41, 42)"),
        ("projected", 1, "main_proj takes 1"),
        ("markov_rank", 128, "Markov rank 128"),
        ("final_norm", False, "norm before the LM head"),
        ("hc_fold", False, "folds the streams"),
        ("non_causal", False, "causal"),
    ],
)
def test_draft__each_fault_has_its_words(field, value, said):
    found = complaints(dataclasses.replace(RIGHT, **{field: value}))
    assert any(said in text for text in found)


def test_draft__small_test_checkpoint_may_have_other_layers():
    small = dataclasses.replace(RIGHT, target_depth=6, target_layers=(3, 4, 5), markov_rank=64)
    assert complaints(small) == []
