"""#13b: a NaN row sends the draft head's gather out of range."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "13b-nan-argmax"
VOCABULARY = 1500  # not a multiple of the kernel's block of 1024


def counted():
    from twinspark import report

    return report.current().as_dict()["counters"].get("nan_rows", 0)


def scenario_sample(consumer):
    """Sampled ids of a clean row, a row of NaN, and a row with one NaN."""
    from importlib import import_module

    import torch

    gumbel_sample = import_module(consumer).gumbel_sample
    torch.manual_seed(0)
    logits = torch.randn(3, VOCABULARY)
    logits[0, 1400] = 50.0
    logits[1] = float("nan")
    logits[2, 7] = float("nan")
    rows = torch.arange(3, dtype=torch.int32)
    zeros = torch.zeros(3)
    sampled = gumbel_sample(
        logits, rows, zeros, torch.zeros(3, dtype=torch.int64), torch.arange(3), True
    )
    return {"ids": sampled.tolist(), "counted": counted()}


def scenario_out_of_range():
    """A sampler that has returned an id beyond the vocabulary, as the kernel can for NaN."""
    import torch
    from vllm.v1.worker.gpu.spec_decode.dspark import speculator

    from twinspark.patches.graphs import nan_argmax

    wrapped = nan_argmax.guarded(lambda _: torch.tensor([3, VOCABULARY + 200, -5]))
    assert callable(speculator.gumbel_sample)
    logits = torch.zeros(3, VOCABULARY)
    logits[1] = float("nan")
    return {"ids": wrapped(logits).tolist(), "counted": counted()}


def scenario_gather(token):
    """The Markov head's embedding of one good id and of one that does not exist."""
    import torch
    from vllm.model_executor.models.qwen3_dspark import DSparkMarkovHead

    head = DSparkMarkovHead.__new__(DSparkMarkovHead)
    torch.nn.Module.__init__(head)
    head.markov_w1 = torch.nn.Embedding(VOCABULARY, 4)
    try:
        row = head.embed(torch.tensor([11, token]))
    except IndexError as error:
        return f"IndexError: {error}"
    good = bool((row[0] == head.markov_w1.weight[11]).all())
    return {"good": good, "finite": bool(row.isfinite().all()), "counted": counted()}


@pytest.mark.parametrize("token", [VOCABULARY, -1])
def test_gather__reproduces_on_pristine(pristine, token):
    assert pristine.run(scenario_gather, token).startswith("IndexError")


@pytest.mark.parametrize("token", [VOCABULARY, -1])
def test_gather__fixed(overlaid, token):
    seen = overlaid.run(scenario_gather, token)
    assert seen == {"good": True, "finite": True, "counted": 1}


@pytest.mark.parametrize(
    "consumer",
    [
        "vllm.v1.worker.gpu.sample.sampler",
        "vllm.v1.worker.gpu.spec_decode.speculator",
        "vllm.v1.worker.gpu.spec_decode.dspark.speculator",
    ],
)
def test_sample__nan_rows_are_counted(pristine, overlaid, consumer):
    assert pristine.run(scenario_sample, consumer)["counted"] == 0
    seen = overlaid.run(scenario_sample, consumer)
    assert seen["counted"] == 2
    assert seen["ids"][0] == 1400, "clean rows are not touched"
    assert all(0 <= token < VOCABULARY for token in seen["ids"])


def test_sample__ids_beyond_the_vocabulary_come_back_inside(overlaid):
    seen = overlaid.run(scenario_out_of_range)
    assert seen == {"ids": [3, VOCABULARY - 1, 0], "counted": 1}


def test_nan_argmax__upstream_unchanged():
    unchanged(PATCH)
