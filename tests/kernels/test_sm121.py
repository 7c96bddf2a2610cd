# ruff: noqa: E402 - skipped before it imports what is not there
"""The kernels compile for sm_121a without a card, and take what the committed table says."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from kernels.support import ROOT, compiling

pytestmark = pytest.mark.vllm
PROBE = """
import json, sys
sys.path.insert(0, "engine_overlay/benchmarks")
import sm121
from dataclasses import asdict
cases = dict.fromkeys((op, config) for op, _, config in sm121.choices())
rows = [asdict(sm121.measure(op, config)) for op, config in cases]
text = sm121.DOCUMENT.read_text()
current = sm121.document(text) == text
from twinspark.kernels.mqa_logits.kernel_sm90 import mqa_logits_sm90_kernel
sm121.CAPABILITY = 90
with sm121.compiling((mqa_logits_sm90_kernel,)) as gluon:
    q, k = (sm121._zeros(*shape, dtype=sm121.FP8) for shape in ((512, 64, 128), (4096, 128)))
    bound = sm121._zeros(512, dtype=sm121.torch.int32)
    args = (q, k, sm121._zeros(4096), sm121._zeros(512, 64), bound, bound)
    sm121.mqa_logits.launch_sm90(*args, processors=132)
products = gluon[-1].asm["ptx"].count("wgmma.mma_async")
print(json.dumps([rows, current, products]))
"""


@pytest.fixture(scope="module")
def probed() -> list:
    return compiling(PROBE)


@pytest.fixture(scope="module")
def compiled(probed) -> list[dict]:
    return probed[0]


def test_document__shows_what_is_chosen(probed):
    assert probed[1]


def test_gluon_form__compiles_to_one_product_of_four_parts_a_warpgroup(probed):
    assert probed[2] == 4 * 4


def test_chosen__fit_a_gb10_block_with_nothing_in_local_memory(compiled):
    assert len(compiled) == 12
    for row in compiled:
        assert row["shared"] <= 101_376, row
        assert (row["spills"], row["local"]) == (0, 0), row


@pytest.mark.skipif(not triton.__version__.startswith("3.7.1"), reason="the table is of 3.7.1")
def test_chosen__take_what_the_committed_table_says(compiled):
    table = json.loads(
        (ROOT / "engine_overlay/src/twinspark/kernels/sm121_resources.json").read_text()
    )
    committed = {(row["op"], json.dumps(row["config"], sort_keys=True)): row for row in table}
    for row in compiled:
        assert committed[row["op"], json.dumps(row["config"], sort_keys=True)] == row
