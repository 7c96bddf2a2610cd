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


def scenario_steps(processors, most, deep_gemm):
    """The steps that a worker runs, and by stock's own rule what each has compiled for it.

    TileLang is not here: of the module that holds the rule only the rule is read.
    """
    import ast
    import sys
    from functools import cache
    from importlib.util import find_spec
    from pathlib import Path
    from types import ModuleType, SimpleNamespace

    from vllm.utils import deep_gemm as support
    from vllm.utils.math_utils import cdiv

    from twinspark.patches.graphs import first_use

    folder = Path(find_spec("vllm.model_executor.kernels").submodule_search_locations[0])
    tree = ast.parse((folder / "mhc/tilelang_kernels.py").read_text())
    rule = next(n for n in tree.body if getattr(n, "name", "") == "compute_num_split")
    card = SimpleNamespace(multi_processor_count=processors)
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda _: card))
    name = "vllm.model_executor.kernels.mhc.tilelang_kernels"
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(torch=torch, cdiv=cdiv, cache=cache)
    exec(compile(ast.Module([rule], []), name, "exec"), module.__dict__)  # noqa: S102 - stock's own
    support.is_deep_gemm_supported = lambda: deep_gemm

    ran = []
    worker = worker_of(hidden_size=4096, hc_mult=4)
    worker.vllm_config.scheduler_config.max_num_batched_tokens = most
    worker.model_runner = SimpleNamespace(
        _dummy_run=lambda tokens, **named: ran.append(
            (tokens, str(named["cudagraph_runtime_mode"]))
        )
    )
    first_use.run_steps(worker)

    def compiled_for(tokens):
        tiles = cdiv(tokens, 64)
        four = module.compute_num_split(64, 4 * 4096, tiles) if deep_gemm else 1
        few = (8 if tokens < 8 else 4) if tokens <= 16 else None
        return few or four, module.compute_num_split(64, 4096, tiles)

    warm = {compiled_for(tokens) for tokens, _ in ran}
    late = sorted({tokens for tokens in range(1, most + 1) if compiled_for(tokens) not in warm})
    return {"sizes": [tokens for tokens, _ in ran], "modes": sorted({mode for _, mode in ran}),
            "late": late}  # fmt: skip


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


def scenario_who_steps():
    """Whether dummy steps, which other ranks must take part in, are run by each kind of call."""
    from vllm.v1.worker import gpu_worker

    from twinspark.patches.graphs import first_use

    gpu_worker.kernel_warmup.__closure__[0].cell_contents = lambda _worker, **_: None
    ran = []
    first_use.compile_all = lambda *_: ran.append("kernels")
    first_use.run_steps = lambda _worker: ran.append("steps")
    gpu_worker.kernel_warmup(worker_of(**DEEPSEEK))
    gpu_worker.kernel_warmup(worker_of(**DEEPSEEK), process_local_only=True)
    return ran


def test_steps__are_run_where_every_rank_warms_up(overlaid):
    assert overlaid.run(scenario_who_steps) == ["kernels", "steps", "kernels"]


def test_steps__of_a_gb10_leave_no_mhc_kernel_for_a_request(overlaid):
    seen = overlaid.run(scenario_steps, 48, 8192, False)
    assert seen["sizes"] == [1, 8, 64, 256, 320, 384, 448, 576, 640, 832, 1088, 1600]
    assert seen["modes"] == ["NONE"], "no graph is captured by a dummy step"
    assert seen["late"] == []


@pytest.mark.parametrize(
    ("processors", "most", "deep_gemm"), [(132, 2048, True), (48, 100, False), (48, 7, False)]
)
def test_steps__leave_none_on_other_cards_and_limits_either(overlaid, processors, most, deep_gemm):
    seen = overlaid.run(scenario_steps, processors, most, deep_gemm)
    assert seen["late"] == []
    assert len(seen["sizes"]) < 32
    assert max(seen["sizes"]) <= most


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
