# ruff: noqa: E402 - skipped before it imports what is not there
"""The kernels compile for sm_121a without a card, and take what the committed table says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import sm121

from kernels.support import ROOT, compiling
from twinspark.kernels.config import Config

pytestmark = pytest.mark.vllm
PROBE = """
import json, sys
sys.path.insert(0, "engine_overlay/benchmarks")
import sm121
from dataclasses import asdict
cases = dict.fromkeys((op, config) for op, _, config in sm121.choices())
rows = [asdict(sm121.measure(op, config)) for op, config in cases]
again = asdict(sm121.measure(*next(iter(cases))))
import re, subprocess, tempfile, triton
from pathlib import Path
tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
cubins = []
for op, config in cases:
    with sm121.compiling(sm121.KERNELS) as built, tempfile.NamedTemporaryFile() as file:
        sm121.launch(op, config)
        Path(file.name).write_bytes(built[-1].asm["cubin"])
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True)
    cubins.append([int(n) for n in re.search(r"REG:(\\d+) STACK:(\\d+)", said.stdout).groups()])
text = sm121.DOCUMENT.read_text()
current = sm121.document(text) == text
lines = sm121.chosen()
fitting = sum(map(sm121.fits, sm121.sm121_table()))
count = f"{fitting} of {sum(map(len, sm121.CONFIGS.values()))} fit."
from twinspark.kernels.mqa_logits.kernel_sm90 import mqa_logits_sm90_kernel
sm121.CAPABILITY = 90
with sm121.compiling((mqa_logits_sm90_kernel,)) as gluon:
    q, k = (sm121._zeros(*shape, dtype=sm121.FP8) for shape in ((512, 64, 128), (4096, 128)))
    bound = sm121._zeros(512, dtype=sm121.torch.int32)
    args = (q, k, sm121._zeros(4096), sm121._zeros(512, 64), bound, bound)
    sm121.mqa_logits.launch_sm90(*args, processors=132)
products = gluon[-1].asm["ptx"].count("wgmma.mma_async")
print(json.dumps([rows, current, products, lines, count, cubins, again]))
"""
EVERY = """
import json, sys
sys.path.insert(0, "engine_overlay/benchmarks")
import sm121
work = [(op, config) for op, configs in sm121.CONFIGS.items() for config in configs]
rows = [row for op, config in work if (row := sm121.measure(op, config))]
print(json.dumps([len(work), sm121.to_json(rows)]))
"""
SAID = """    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers
"""
CLEAN = SAID.format(stack=0, stores=0, loads=0, registers=40)
TABLE = ROOT / "engine_overlay/src/twinspark/kernels/sm121_resources.json"
of_3_7_1 = pytest.mark.skipif(
    not triton.__version__.startswith("3.7.1"), reason="the table is of 3.7.1"
)


@pytest.fixture(scope="module")
def probed() -> list:
    return compiling(PROBE)


@pytest.fixture(scope="module")
def compiled(probed) -> list[dict]:
    return probed[0]


def told(said: str, target: str = "sm_121a") -> sm121.Resources:
    compiled = SimpleNamespace(
        asm={"ptx": f".version 9.0\n.target {target}\n"}, metadata=SimpleNamespace(shared=512)
    )
    return sm121.resources("op", Config(m=1, n=64), compiled, said)


def test_resources__are_what_ptxas_said():
    said = SAID.format(stack=16, stores=8, loads=20, registers=128)
    found = told(said)
    assert (found.registers, found.shared, found.spills, found.local) == (128, 512, 28, 16)


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a", "sm_121"])
def test_resources__refuse_another_target(target):
    with pytest.raises(ValueError, match=rf"compiled for {target}, not sm_121a"):
        told(CLEAN, target)


@pytest.mark.parametrize("said", ["", CLEAN + CLEAN])
def test_resources__refuse_no_kernel_and_two(said):
    with pytest.raises(ValueError, match="ptxas said"):
        told(said)


def test_resources__are_those_of_the_machine_code_that_triton_makes(probed):
    assert [[row["registers"], row["local"]] for row in probed[0]] == probed[5]


def test_measure__says_the_same_when_asked_again(probed):
    assert probed[6] == probed[0][0]


def test_document__shows_what_is_chosen(probed):
    assert probed[1]


def test_gluon_form__compiles_to_one_product_of_four_parts_a_warpgroup(probed):
    assert probed[2] == 4 * 4


def test_chosen__fit_a_gb10_block_with_nothing_in_local_memory(compiled):
    assert len(compiled) == 12
    for row in compiled:
        assert row["shared"] <= 101_376, row
        assert (row["spills"], row["local"]) == (0, 0), row


def test_script__prints_what_is_chosen_case_by_case(probed):
    document = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    cells = [line.split("|") for line in document.splitlines() if line.count("|") == 9]
    shown = {f"{op.strip()}, {case.strip()}: {key.strip(' `')}" for _, op, case, key, *_ in cells}
    assert len(probed[3]) == 12
    assert set(probed[3]) <= shown
    assert probed[4] in document


@of_3_7_1
def test_chosen__take_what_the_committed_table_says(compiled):
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    committed = {(row["op"], json.dumps(row["config"], sort_keys=True)): row for row in table}
    for row in compiled:
        assert committed[row["op"], json.dumps(row["config"], sort_keys=True)] == row


@pytest.mark.slow
@of_3_7_1
def test_table__is_what_every_configuration_compiles_to():
    """Renewed by `sm121.py --write`; about two minutes on one core."""
    count, text = compiling(EVERY)
    have, want = json.loads(TABLE.read_text(encoding="utf-8")), json.loads(text)
    assert [row for row in want if row not in have] == []
    assert [row for row in have if row not in want] == []
    assert len(have) <= count
    assert TABLE.read_text(encoding="utf-8") == text
