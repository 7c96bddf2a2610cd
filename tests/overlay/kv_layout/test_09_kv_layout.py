"""#9: a cache dtype that is not what it says."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "09-kv-layout"
LIARS = ["fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head", "fp8_inc"]


def scenario_resolve(label):
    """What a cache dtype label becomes on the fp8_ds_mla path."""
    from types import SimpleNamespace

    from vllm.models.deepseek_v4 import attention

    cache = SimpleNamespace(cache_dtype=label)
    try:
        resolved, dtype = attention._resolve_dsv4_kv_cache_dtype(True, label, cache)
    except (AssertionError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return [resolved, str(dtype), cache.cache_dtype]


def scenario_ranks(change):
    """EngineCore's `get_kv_cache_configs` over the specs of two ranks."""
    import dataclasses
    from types import SimpleNamespace

    from vllm.v1.engine import core

    from overlay.deepseek import specs
    from twinspark import report

    ranks = [specs(), specs()]
    name = next(n for n in ranks[1] if n.endswith("swa"))
    if change == "one rank":
        ranks[1][name] = dataclasses.replace(ranks[1][name], cache_dtype_str="auto", head_size=584)
    elif change == "alignment":
        for rank in ranks:
            rank[name] = dataclasses.replace(rank[name], alignment=512)
    config = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=1))
    try:
        core.get_kv_cache_configs(config, ranks, [1 << 30, 1 << 30])
    except (AttributeError, TypeError):
        pass  # the stub configuration carries no further than the overlay's check
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return report.current().as_dict()["facts"].get("kv_layout")


@pytest.mark.parametrize("label", LIARS)
def test_label__reproduces_on_pristine(pristine, label):
    assert pristine.run(scenario_resolve, label) == ["fp8_ds_mla", "torch.uint8", "fp8_ds_mla"]


@pytest.mark.parametrize("label", [*LIARS, "auto", "bfloat16", "nvfp4"])
def test_label__fixed(overlaid, label):
    said = overlaid.run(scenario_resolve, label)
    assert said.startswith(f"LayoutError: --kv-cache-dtype {label} would store fp8_ds_mla")


def test_label__that_says_what_it_is_passes(overlaid):
    assert overlaid.run(scenario_resolve, "fp8_ds_mla")[0] == "fp8_ds_mla"


def test_layout__reproduces_on_pristine(pristine):
    """Stock takes pages that are aligned in two ways, and describes nothing."""
    assert pristine.run(scenario_ranks, "alignment") is None


def test_layout__fixed(overlaid):
    said = overlaid.run(scenario_ranks, "one rank")
    assert said.startswith("LayoutError: KV cache layouts differ between ranks")


def test_layout__mixed_alignment_is_refused(overlaid):
    said = overlaid.run(scenario_ranks, "alignment")
    assert "pages are aligned to 512, fp8_ds_mla needs 576" in said


def test_layout__is_reported_once_with_its_bytes(overlaid):
    layout = overlaid.run(scenario_ranks, "none")
    assert layout["ranks"] == 2
    pages = {(k["spec"], k["block"], k["stored"]): k for k in layout["kinds"]}
    main = pages["MLAAttentionSpec", 256, 64]
    assert {pages[key]["bytes_per_token"] for key in pages if pages[key]["label"]} == {584}
    assert pages["MLAAttentionSpec", 256, 2]["page"] == 1728
    assert pages["SlidingWindowMLASpec", 64, 64]["page"] == 37_440
    assert main["alignment"] == 576


def test_layout__upstream_unchanged():
    unchanged(PATCH)
