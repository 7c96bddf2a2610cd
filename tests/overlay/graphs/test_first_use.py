"""The overlay's kernels run before the engine serves; what compiles later is counted."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged

pytestmark = pytest.mark.vllm
PATCH = "first-use"


def worker_of(**model):
    """A worker as `kernel_warmup` is given one."""
    from types import SimpleNamespace

    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(**model)),
        speculative_config=SimpleNamespace(num_speculative_tokens=1),
        scheduler_config=SimpleNamespace(max_num_seqs=1),
        compilation_config=SimpleNamespace(cudagraph_capture_sizes=[2]),
    )
    return SimpleNamespace(vllm_config=config, device="cpu")


def scenario_warmup(**model):
    """What `compile_or_warm_up_model` calls by that name; which operations ran, in order."""
    from vllm.v1.worker import gpu_worker

    from twinspark import report, selection

    own = getattr(gpu_worker.kernel_warmup, "__wrapped__", None)
    stock = []
    if own is not None:  # stock's needs a GPU
        cell = gpu_worker.kernel_warmup.__closure__[0]
        cell.cell_contents = lambda _worker, **options: stock.append(sorted(options))
        gpu_worker.kernel_warmup(worker_of(**model), process_local_only=True)
    told = [kernel["op"] for kernel in report.current().as_dict()["kernels"]]
    rows = selection.rows_per_request()
    return {"wrapped": own is not None, "stock": stock, "told": told, "rows": rows}


def scenario_late(module):
    """Triton's hook, as the monitor sets it up, hears of one compilation after the start."""
    from types import SimpleNamespace

    from triton import knobs
    from vllm.utils import jit_monitor

    from twinspark import report

    jit_monitor._setup_triton_jit_hook()
    knobs.runtime.jit_post_compile_hook(fn=SimpleNamespace(module=module, name="kernel"))
    return report.current().as_dict()["counters"]


DEEPSEEK = {"num_attention_heads": 1, "head_dim": 512, "o_groups": 1}


def deepseek_warmup():
    return scenario_warmup(**DEEPSEEK)


def other_warmup():
    return scenario_warmup(num_attention_heads=8)


def test_warmup__reproduces_on_pristine(pristine):
    """Stock's own warm-up is called, and knows nothing of another's kernels."""
    assert pristine.run(deepseek_warmup) == {
        "wrapped": False, "stock": [], "told": [], "rows": None,
    }  # fmt: skip


def test_warmup__fixed(overlaid):
    seen = overlaid.run(deepseek_warmup, timeout=240)
    assert seen["stock"] == [["process_local_only"]]
    assert seen["rows"] == 2, "one draft and one more, for the calls to come"
    assert seen["told"] == ["mqa_logits", "paged_mqa_logits", "hc_prenorm_gemm", "fp8_o_proj"]


def test_warmup__of_another_model_is_stock_s(overlaid):
    assert overlaid.run(other_warmup) == {
        "wrapped": True, "stock": [["process_local_only"]], "told": [], "rows": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("module", "counted"),
    [
        ("vllm.v1.sample.ops", {"late_compilations": 1}),
        ("twinspark.kernels.x", {"late_compilations": 1, "overlay_late_compilations": 1}),
    ],
)
def test_late_compilation__is_counted_with_the_overlay_s_own_apart(overlaid, module, counted):
    assert overlaid.run(scenario_late, module) == counted


def test_late_compilation__is_only_logged_on_pristine(pristine):
    assert pristine.run(scenario_late, "vllm.v1.sample.ops") == {}


def test_first_use__upstream_unchanged():
    unchanged(PATCH)
