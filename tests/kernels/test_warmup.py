"""After the warm-up no call of the engine compiles anything: keys alone, nothing is compiled here.

Triton computes the key of every launch before it compiles; its cache hook hears of a new one and
may call the compilation off. The calls are made as the engine makes them, for random batches.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from kernels.support import compiling
from twinspark.kernels import warmup

pytestmark = pytest.mark.vllm
PROBE = """
import json, random, sys
sys.path.insert(0, "engine_overlay/benchmarks")
import sm121, torch
from triton import knobs
from twinspark.kernels import dispatch, warmup
from importlib import import_module

CAPABILITY, WARM = int(sys.argv[1]), sys.argv[2] == "warm"
sm121.CAPABILITY = CAPABILITY
where = dispatch.Target(CAPABILITY, 48)
for op in ("mqa_logits", "paged_mqa_logits", "hc_prenorm_gemm", "fp8_o_proj", "zero_rows"):
    import_module(f"twinspark.kernels.{op}").runnable = lambda *_, **__: where
sm121.driver.set_active(sm121.Target())
seen = {}

def hook(fn, key, **_):
    seen.setdefault((fn.module, fn.name, key), fn.module)
    return True  # nothing is compiled

knobs.runtime.jit_cache_hook = hook

def call(op, *args, more=(), hints={}):
    before = len(seen)
    import_module(f"twinspark.kernels.{op}").dispatch(*args, **hints)[0](*args, *more)
    return len(seen) - before

def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype)

i32, fp8, u8 = torch.int32, torch.float8_e4m3fn, torch.uint8
sizes = warmup.Sizes(decode_rows=66, o_proj_depth=4096, rows_per_request=6)
for case in warmup.cases(sizes, "cpu") if WARM else ():
    call(case.op, *case.arguments, more=case.more, hints=case.hints)
warm, late = len(seen), []
chance = random.Random(0)

def sliced(rows):  # a chunk's bounds: a slice that begins anywhere
    start = chance.randrange(9)
    return empty(start + rows, dtype=i32)[start:]

def batch():
    tokens = chance.choice([1, 2, 3, 6, 16, 17, 48, 128, 129, 512, 513, 1000, 4096])
    keys = chance.choice([1, 16, 77, 640, 4097])
    start = chance.randrange(5)
    k = empty(8192, 128, dtype=fp8)[:keys], empty(8192, 4, dtype=u8)[:keys].view(torch.float32)
    yield "mqa_logits", (empty(start + 600, 64, 128, dtype=fp8)[start:][:tokens], k[0],
        k[1].squeeze(-1), empty(start + 600, 64)[start:][:tokens],
        sliced(min(tokens, 600)), sliced(min(tokens, 600))), ()
    rows = chance.randint(1, 66)
    width = chance.choice([1, 5, 16, 4096])  # a block table's columns
    pages = empty(4, 8640, dtype=u8).as_strided((3, 64, 1, 132), (8640, 132, 132, 1))
    yield "paged_mqa_logits", (empty(rows, 1, 64, 128, dtype=fp8), pages, empty(rows, 64),
        empty(chance.randrange(4) + rows, dtype=i32)[-rows:].view(rows, 1),
        empty(rows + 1, width, dtype=i32)[1:]), (chance.choice([32768, 1_048_576]),)
    splits = chance.choice([1, 2, 3, 4, 8, 16])
    for depth in (4096, 16_384):
        yield "hc_prenorm_gemm", (empty(tokens, depth, dtype=torch.bfloat16), empty(24, depth),
            empty(splits, tokens, 24), empty(splits, tokens)), ()
    padded = -(-tokens // 4) * 4  # as fused_inv_rope_fp8_quant.py:249-257 lays scales out
    scale = empty(4 * 32 * padded).as_strided((4, tokens, 32), (32 * padded, 1, padded))
    yield "fp8_o_proj", (empty(4, tokens, 4096, dtype=fp8).transpose(0, 1), scale.transpose(0, 1),
        empty(4, 1024, 4096, dtype=fp8), empty(4, 8, 32),
        empty(tokens, 4, 1024, dtype=torch.bfloat16)), ()

calls = 0
for _ in range(60):
    for op, args, more in batch():
        calls += 1
        # as the patch calls it, and once in a while as a call that knows of no drafts
        each = chance.choice([6, 6, 6, 1])
        hints = {"rows_per_request": each} if op == "paged_mqa_logits" else {}
        if call(op, *args, more=more, hints=hints):
            late.append(op)
modules = sorted(set(seen.values()))
print(json.dumps({"warm": warm, "calls": calls, "late": late, "modules": modules}))
"""


def probed(capability: int, what: str = "warm") -> dict:
    return compiling(PROBE, str(capability), what)


@pytest.mark.parametrize("capability", [121, 90])
def test_warmup__leaves_nothing_to_compile_for_any_batch(capability):
    seen = probed(capability)
    assert (seen["late"], seen["calls"]) == ([], 300)
    # pairs of rows are other kernels, where they are chosen
    assert seen["warm"] >= (22 if capability == 121 else 14)
    assert all(module.startswith("twinspark.kernels.") for module in seen["modules"])


def test_warmup__that_is_left_out_is_found_out():
    seen = probed(121, "cold")
    assert seen["warm"] == 0
    assert set(seen["late"]) == {"mqa_logits", "paged_mqa_logits", "hc_prenorm_gemm", "fp8_o_proj"}


def test_powers__reach_the_largest_decode_step():
    assert warmup.powers_up_to(1) == [1]
    assert warmup.powers_up_to(64) == [1, 2, 4, 8, 16, 32, 64]
    assert warmup.powers_up_to(66)[-1] == 128


def engine(**model):
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(**model)),
        speculative_config=SimpleNamespace(num_speculative_tokens=5),
        scheduler_config=SimpleNamespace(max_num_seqs=6),
        compilation_config=SimpleNamespace(cudagraph_capture_sizes=[6, 12, 36]),
    )


def test_sizes__are_those_of_the_configuration():
    config = engine(num_attention_heads=64, head_dim=512, o_groups=8)
    assert warmup.sizes_of(config) == warmup.Sizes(66, 4096, rows_per_request=6)
    config.speculative_config = None
    assert warmup.sizes_of(config) == warmup.Sizes(36, 4096, rows_per_request=1)


def test_sizes__of_another_model_are_none():
    assert warmup.sizes_of(engine(num_attention_heads=8)) is None
