"""Who serves a request is explicit, said once, and never a slow path."""

from __future__ import annotations

import logging
import sys

import pytest

from twinspark.kernels import dispatch
from twinspark.kernels.config import Config
from twinspark.kernels.dispatch import KernelError, Mode


@pytest.fixture(autouse=True)
def _nothing_recorded():
    dispatch.forget()
    yield
    dispatch.forget()


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, Mode.TRITON),
        ({"TWINSPARK_KERNELS": "triton"}, Mode.TRITON),
        ({"TWINSPARK_KERNELS": "check"}, Mode.CHECK),
        ({"TWINSPARK_KERNELS": "deepgemm"}, Mode.DEEPGEMM),
    ],
)
def test_requested__reads_the_variable(environ, mode):
    assert dispatch.requested(environ) is mode


@pytest.mark.parametrize("value", ["", "torch", "TRITON", "auto"])
def test_requested__refuses_what_it_does_not_know(value):
    with pytest.raises(KernelError, match="use one of triton, check, deepgemm"):
        dispatch.requested({"TWINSPARK_KERNELS": value})


def test_record__keeps_and_logs_a_decision_once(caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        dispatch.record("op", "triton m1", "because")
    dispatch.record("op", "triton m2", "more rows")
    assert [(c.kernel, c.reason) for c in dispatch.recorded()] == [
        ("triton m1", "because"),
        ("triton m2", "more rows"),
    ]
    assert len(caplog.records) == 2


def test_package__imports_neither_torch_nor_triton():
    import subprocess  # noqa: PLC0415

    code = (
        "import sys, twinspark.kernels, twinspark.kernels.dispatch, twinspark.kernels.config;"
        "sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestTensors:
    pytestmark = pytest.mark.vllm

    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    def test_target__is_no_cpu_outside_the_interpreter(self, monkeypatch):
        monkeypatch.setenv("TRITON_INTERPRET", "0")
        monkeypatch.setattr(dispatch, "interpreting", lambda: False)
        with pytest.raises(KernelError, match=r"op: \(2, 3\) stride \(3, 1\) torch.float32 is on"):
            dispatch.target(self.torch.zeros(2, 3), "op")

    def test_runnable__refuses_an_old_card_with_the_shape(self, monkeypatch):
        old = dispatch.Target(80, 108)
        monkeypatch.setattr(dispatch, "target", lambda *_: old)
        with pytest.raises(KernelError, match=r"sm_80 is too old, sm_89 is needed: \(4,\)"):
            dispatch.runnable(self.torch.zeros(4), "op")

    @pytest.mark.parametrize(
        ("shape", "dtype", "layout", "admitted"),
        [
            ((None, 4), "float32", "all", True),
            ((3, 4), "float32", "all", True),
            ((3, 5), "float32", "all", False),
            ((3,), "float32", "all", False),
            ((3, 4), "float16", "all", False),
        ],
    )
    def test_wanted__compares_shape_and_type(self, shape, dtype, layout, admitted):
        want = dispatch.Wanted(shape, getattr(self.torch, dtype), layout)
        assert want.admits(self.torch.zeros(3, 4)) is admitted

    @pytest.mark.parametrize(
        ("layout", "admitted"), [("all", False), ("last", True), ("any", True)]
    )
    def test_wanted__compares_layout(self, layout, admitted):
        want = dispatch.Wanted((3, 4), self.torch.float32, layout)
        assert want.admits(self.torch.zeros(3, 8)[:, :4]) is admitted

    def test_require__names_the_argument_and_all_shapes(self):
        tensors = {"a": self.torch.zeros(2), "b": self.torch.zeros(3, 1)}
        with pytest.raises(KernelError) as error:
            dispatch.require("op", tensors, a=dispatch.Wanted((None, 7), self.torch.float32))
        assert "op: a must be [any, 7] torch.float32, contiguous" in str(error.value)
        assert "a (2,)" in str(error.value)
        assert "b (3, 1)" in str(error.value)

    def test_ranked__names_the_argument_and_all_shapes(self):
        tensors = {"a": self.torch.zeros(()), "b": self.torch.zeros(3, 1)}
        dispatch.ranked("op", tensors, a=0, b=2)
        with pytest.raises(KernelError, match=r"op: a must be of 2 dimensions; got a \(\).*b \(3"):
            dispatch.ranked("op", tensors, b=2, a=2)


def test_admitted__names_the_field_and_what_it_may_be():
    config = Config(m=2, n=64, warps=8, stages=3)
    assert dispatch.admitted("op", config, m=(1, 2), n=dispatch.POWERS) is config
    with pytest.raises(KernelError, match=r"op: n=64 of m2n64\S+ is not one of \(16, 32\)"):
        dispatch.admitted("op", config, n=(16, 32))
